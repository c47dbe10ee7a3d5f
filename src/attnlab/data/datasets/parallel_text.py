"""Parallel text from a tab-separated file or two aligned files, optionally with gold alignments."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import islice

from attnlab.data.corpus import Alignment, Corpus, Pair, split
from attnlab.data.files import read_text, split_lines
from attnlab.errors import UserError

LINK = re.compile(r"(\d+)-(\d+)", re.ASCII)


def load(
    *,
    path: str | None = None,
    source_path: str | None = None,
    target_path: str | None = None,
    alignments_path: str | None = None,
    header: bool | None = None,
    source_column: int = 0,
    target_column: int = 1,
    limit: int | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> Corpus:
    """Load sentence pairs and split them at random into training, validation and test.

    Give either `path`, or both `source_path` and `target_path`. Empty lines are skipped. Pairs whose sources
    differ only in case, punctuation, symbols and white space stay in one split. (A tokenizer that drops more,
    such as digits, can still make sources of different splits equal.)

    Args:
        path: tab-separated file with one pair per line, as exported by Tatoeba and Anki; quotation marks are
            text.
        source_path: file with one source sentence per line.
        target_path: file whose line i is the translation of line i of `source_path`.
        alignments_path: file whose line i has the gold alignment of line i in Pharaoh format, such as
            `0-0 1-2`: source token 0 with target token 0, 1 with 2. The tokenizer must produce the aligner's
            tokens: `whitespace`, or `words` if it drops no token.
        header: whether the first row of the table is a header; None if it is one only when both cells are
            numbers, such as `1<TAB>2`.
        source_column: column of the source sentence, from 0.
        target_column: column of the target sentence, from 0.
        limit: number of pairs to read; None for all.
        val_fraction: share of the pairs in the validation split.
        test_fraction: share of the pairs in the test split.
        seed: seed of the split.

    Raises:
        UserError: if a setting is missing or invalid, or a file cannot be read or parsed.
    """
    if limit is not None and limit < 1:
        raise UserError(f"data.limit={limit} must be at least 1, or null for all pairs")
    if path and not (source_path or target_path):
        read_pairs = _read_table(path, alignments_path, header, source_column, target_column)
    elif source_path and target_path and not path:
        read_pairs = _read_aligned(source_path, target_path, alignments_path)
    else:
        raise UserError(
            "data: no text is given. Set data.path=FILE to a tab-separated file, or "
            "data.source_path=FILE and data.target_path=FILE to two aligned files"
        )
    pairs = list(islice(read_pairs, limit))
    if not pairs:
        raise UserError(f"{path or source_path}: no sentence pairs. Provide a file with at least 2 pairs")
    train, val, test = split(
        pairs,
        val_fraction=val_fraction,
        test_fraction=test_fraction,
        seed=seed,
        groups=_source_keys([pair.source for pair in pairs]),
    )
    return Corpus(train=train, val=val, test=test)


def _read_table(
    path: str, alignments_path: str | None, header: bool | None, source_column: int, target_column: int
) -> Iterator[Pair]:
    """Yield the pairs of a tab-separated file."""
    if source_column < 0 or target_column < 0 or source_column == target_column:
        raise UserError(
            f"data.source_column={source_column} and data.target_column={target_column} must be two "
            "different column numbers, counted from 0"
        )
    columns = max(source_column, target_column) + 1
    lines = _read_lines({"data.path": path, "data.alignments_path": alignments_path})
    filled = ((i, line, links) for i, (line, links) in enumerate(lines, start=1) if line.strip())
    for row, (number, line, links) in enumerate(filled):
        cells = line.split("\t")
        if len(cells) < columns:
            count = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            raise UserError(
                f"{path}, line {number}: {count}, expected at least {columns}. Separate columns by tabs, or "
                "set data.source_column and data.target_column"
            )
        source, target = cells[source_column], cells[target_column]
        is_header = source.strip().isdigit() and target.strip().isdigit() if header is None else header
        if row > 0 or not is_header:
            alignment = _parse_alignment(links, alignments_path, number)
            yield _check_text(Pair(source, target, alignment), f"{path}, line {number}")


def _read_aligned(source_path: str, target_path: str, alignments_path: str | None) -> Iterator[Pair]:
    """Yield the pairs of two files with equally many lines."""
    files = {"data.source_path": source_path, "data.target_path": target_path}
    lines = _read_lines({**files, "data.alignments_path": alignments_path})
    for number, (source, target, links) in enumerate(lines, start=1):
        if source.strip() or target.strip():
            alignment = _parse_alignment(links, alignments_path, number)
            location = f"{source_path} and {target_path}, line {number}"
            yield _check_text(Pair(source, target, alignment), location)


def _read_lines(paths: Mapping[str, str | None]) -> Iterator[tuple[str, ...]]:
    """Yield line i of each file for every i; a file that is None has empty lines.

    `paths` maps settings to files. The first file must be given.
    """
    columns: list[list[str]] = []
    first, *_ = paths.values()
    for setting, path in paths.items():
        lines = [""] * len(columns[0]) if path is None else split_lines(read_text(path, setting=setting))
        columns.append(lines)
        if len(lines) != len(columns[0]):
            raise UserError(
                f"{first} has {len(columns[0])} lines, but {path} has {len(lines)}. The files must have the "
                "same number of lines"
            )
    return zip(*columns, strict=True)


def _parse_alignment(links: str, path: str | None, number: int) -> Alignment | None:
    """Parse a line in Pharaoh format; None if there is no alignment file."""
    if path is None:
        return None
    alignment = []
    for link in links.split():
        match = LINK.fullmatch(link)
        if match is None:
            raise UserError(
                f"{path}, line {number}: {link!r} is not a link. Write SOURCE-TARGET with token numbers from "
                "0, such as 0-0 1-2"
            )
        alignment.append((int(match[1]), int(match[2])))
    return tuple(alignment)


def _check_text(pair: Pair, location: str) -> Pair:
    """Return the pair, or raise `UserError` if one of its sides is empty."""
    for name, text in (("source", pair.source), ("target", pair.target)):
        if not text.strip():
            raise UserError(f"{location}: the {name} is empty. Add the text or remove the line")
    return pair


def _source_keys(sources: list[str]) -> list[str]:
    """Return each source without case, punctuation and symbols and with single spaces.

    A source that consists of punctuation and symbols only, such as an emoji, is its own key.
    """
    folded = [source.casefold() for source in sources]
    dropped = {
        ord(character): None
        for character in set("".join(folded))
        if unicodedata.category(character)[0] in {"P", "S"}
    }
    return [" ".join(text.translate(dropped).split()) or text for text in folded]
