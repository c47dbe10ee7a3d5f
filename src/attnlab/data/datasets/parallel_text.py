"""Parallel text: a tab-separated table, or two aligned plain files; with gold alignments, if there are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
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
    """Read sentence pairs and split them at random, keeping pairs of one source together.

    Either `path` is a table, a pair a line and a tab between columns, as Tatoeba and Anki export it; columns
    count from 0 and may be more than two; quotation marks are text. Or line i of `target_path` translates
    line i of `source_path`.

    `alignments_path` has gold alignments in the Pharaoh format, as word aligners write them: line i holds the
    links of line i of the other files, such as `0-0 1-2` for the first source token with the first target
    token and the second with the third; a line without links is empty. Tokens count as the aligner saw them,
    so it takes a tokenizer that cuts where it did: `whitespace`, or `words` where it drops no word whole.

    `header` tells whether a table's first row is a header; None takes a row of column numbers, such as
    `1<TAB>2`, for one. Empty lines are skipped. `limit` reads only the first so many pairs.

    Two sources are one where only case, punctuation, symbols and the amount of white space tell them apart;
    all their pairs land in the same split. A tokenizer that drops more, such as digits, can still make two
    sources equal.

    Raises `UserError` where files or settings are missing, do not fit together, or are broken.
    """
    if limit is not None and limit < 1:
        raise UserError(f"data.limit={limit}: ask for at least 1 pair, or null for all")
    if path and not (source_path or target_path):
        found = _table(path, alignments_path, header, source_column, target_column)
    elif source_path and target_path and not path:
        found = _aligned(source_path, target_path, alignments_path)
    else:
        raise UserError(
            "no text to read: set data.path=FILE to a tab-separated file, or else both "
            "data.source_path=FILE and data.target_path=FILE to two aligned files"
        )
    pairs = list(islice(found, limit))
    if not pairs:
        raise UserError(f"{path or source_path}: there is no pair in it: give a file with sentence pairs")
    train, val, test = split(
        pairs,
        val_fraction=val_fraction,
        test_fraction=test_fraction,
        seed=seed,
        groups=_source_keys([pair.source for pair in pairs]),
    )
    return Corpus(train=train, val=val, test=test)


def _table(
    path: str, alignments_path: str | None, header: bool | None, source_column: int, target_column: int
) -> Iterator[Pair]:
    """The pairs of a tab-separated file."""
    if source_column < 0 or target_column < 0 or source_column == target_column:
        raise UserError(
            f"data.source_column={source_column} and data.target_column={target_column}: give two different "
            "columns, counted from 0"
        )
    needed = max(source_column, target_column) + 1
    lines = _side_by_side(path, alignments_path)
    filled = ((i, line, links) for i, (line, links) in enumerate(lines, start=1) if line.strip())
    for row, (number, line, links) in enumerate(filled):
        cells = line.split("\t")
        if len(cells) < needed:
            raise UserError(
                f"{path}, line {number}: {len(cells)} of the {needed} columns needed: put tabs between "
                "columns, or set data.source_column and data.target_column"
            )
        source, target = cells[source_column], cells[target_column]
        is_header = source.strip().isdigit() and target.strip().isdigit() if header is None else header
        if row > 0 or not is_header:
            alignment = _alignment(links, alignments_path, number)
            yield _check(Pair(source, target, alignment), f"{path}, line {number}")


def _aligned(source_path: str, target_path: str, alignments_path: str | None) -> Iterator[Pair]:
    """The pairs of two files with as many lines."""
    lines = _side_by_side(source_path, target_path, alignments_path)
    for number, (source, target, links) in enumerate(lines, start=1):
        if source.strip() or target.strip():
            alignment = _alignment(links, alignments_path, number)
            place = f"{source_path} and {target_path}, line {number}"
            yield _check(Pair(source, target, alignment), place)


def _side_by_side(first: str, *others: str | None) -> Iterator[tuple[str, ...]]:
    """Line i of each file, for every i; a file that is None has empty lines."""
    lines = split_lines(read_text(first))
    columns = [lines]
    for path in others:
        columns.append([""] * len(lines) if path is None else split_lines(read_text(path)))
        if len(columns[-1]) != len(lines):
            raise UserError(
                f"{first} has {len(lines)} lines, but {path} has {len(columns[-1])}: line i of one must "
                "belong to line i of the other"
            )
    return zip(*columns, strict=True)


def _alignment(links: str, path: str | None, number: int) -> Alignment | None:
    """The links of a line in the Pharaoh format; None where there is no such file."""
    if path is None:
        return None
    found = []
    for link in links.split():
        match = LINK.fullmatch(link)
        if match is None:
            raise UserError(
                f"{path}, line {number}: {link!r} is no link: write two places, counted from 0, as "
                "SOURCE-TARGET, such as 0-0 1-2"
            )
        found.append((int(match[1]), int(match[2])))
    return tuple(found)


def _check(pair: Pair, place: str) -> Pair:
    """Demand text on both sides."""
    for name, text in (("source", pair.source), ("target", pair.target)):
        if not text.strip():
            raise UserError(f"{place}: the {name} is empty: fill it in, or remove the line")
    return pair


def _source_keys(sources: list[str]) -> list[str]:
    """What is left of each source without case, punctuation, symbols and more than one blank at a time.

    A source of nothing but punctuation or symbols, an emoji for one, is its own key.
    """
    folded = [source.casefold() for source in sources]
    dropped = {
        ord(character): None
        for character in set("".join(folded))
        if unicodedata.category(character)[0] in {"P", "S"}
    }
    return [" ".join(text.translate(dropped).split()) or text for text in folded]
