"""Sentence pairs in files: tab-separated text, JSON lines, or two aligned files, each plain or gzipped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.data.corpus import Alignment, Pair
from attnlab.errors import UserError
from attnlab.files.reading import exists, read_text, split_lines

LINK = re.compile(r"(\d+)-(\d+)", re.ASCII)
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
SURROGATE = re.compile("[\ud800-\udfff]")
"""A lone surrogate: valid in JSON escapes, but not encodable as UTF-8 and rejected by the tokenizers."""


class PairFile(NamedTuple):
    """Pairs, with the files that they were read from."""

    pairs: list[Pair]
    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Places of the source and the target in files of pairs.

    Args:
        languages: (source, target) languages. They are the endings of two aligned files, `train.de` and
            `train.en`, and the keys of JSON lines. None for tables, and for the keys "source" and "target".
        header: whether the first row of a table is a header; None if it is one only when both cells are
            numbers, such as `1<TAB>2`.
        source_column: column of the source sentence in a table, from 0.
        target_column: column of the target sentence, from 0.

    Raises:
        UserError: if the languages or the columns are not two different ones.
    """

    languages: Sequence[str] | None = None
    header: bool | None = None
    source_column: int = 0
    target_column: int = 1

    def __post_init__(self) -> None:
        languages = self.languages
        if languages is not None and (
            isinstance(languages, str)
            or len(languages) != 2
            or not all(isinstance(language, str) and language for language in languages)
            or languages[0] == languages[1]
        ):
            raise UserError(
                f"data.languages={languages} must be the source and the target language, such as [de,en]"
            )
        columns = (self.source_column, self.target_column)
        if not all(type(column) is int and column >= 0 for column in columns) or columns[0] == columns[1]:
            raise UserError(
                f"data.source_column={self.source_column} and data.target_column={self.target_column} must "
                "be two different column numbers, counted from 0"
            )

    def read(
        self, location: Any, *, setting: str, alignments_path: str | None = None, limit: int | None = None
    ) -> PairFile:
        """Read the pairs of a file, or of two aligned files that `location` is the prefix of.

        Args:
            location: path of a table or of JSON lines (`.jsonl`, `.ndjson` or `.json`), or the prefix of two
                aligned files whose endings are the languages; each file may also end in `.gz`.
            setting: the setting that gives the location, such as "data.train", for error messages.
            alignments_path: file with the gold alignment of each line; see `read_aligned`.
            limit: number of pairs to read; None for all.

        Raises:
            UserError: if there is no such file, or it cannot be read or parsed, or has no pairs.
        """
        if not isinstance(location, str) or not location:
            raise UserError(f"{setting}={location} must be the path of a file")
        if self.languages is not None:
            parts = [_existing(f"{location}.{language}") for language in self.languages]
            source, target = (f"{location}.{language}" for language in self.languages)
            if any(parts) or not exists(location):
                return read_aligned(
                    (parts[0] or source, parts[1] or target),
                    settings=(setting, setting),
                    alignments_path=alignments_path,
                    limit=limit,
                )
        elif not exists(location) and (endings := _endings(location)):
            raise UserError(
                f"{setting}: {location} does not exist. For the aligned files {location}.{endings[0]} and "
                f"{location}.{endings[1]} set data.languages=[{','.join(endings)}]"
            )
        is_json = location.removesuffix(".gz").endswith(JSON_SUFFIXES)
        read = self._json_lines if is_json else self._table
        files = (location, *([alignments_path] if alignments_path else []))
        return _checked(read(location, setting, alignments_path), files, limit)

    def _table(self, path: str, setting: str, alignments_path: str | None) -> Iterator[Pair]:
        """Yield the pairs of a tab-separated file."""
        columns = max(self.source_column, self.target_column) + 1
        lines = _read_lines([(setting, path), ("data.alignments_path", alignments_path)])
        filled = ((i, line, links) for i, (line, links) in enumerate(lines, start=1) if line.strip())
        for row, (number, line, links) in enumerate(filled):
            cells = line.split("\t")
            if len(cells) < columns:
                count = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
                raise UserError(
                    f"{path}, line {number}: {count}, expected at least {columns}. Separate columns by tabs, "
                    "or set data.source_column and data.target_column"
                )
            source, target = cells[self.source_column], cells[self.target_column]
            numbers = source.strip().isdigit() and target.strip().isdigit()
            is_header = numbers if self.header is None else self.header
            if row > 0 or not is_header:
                alignment = _parse_alignment(links, alignments_path, number)
                yield _check_text(Pair(source, target, alignment), f"{path}, line {number}")

    def _json_lines(self, path: str, setting: str, alignments_path: str | None) -> Iterator[Pair]:
        """Yield the pairs of a file with one JSON object per line."""
        keys = tuple(self.languages or ("source", "target"))
        lines = _read_lines([(setting, path), ("data.alignments_path", alignments_path)])
        for number, (line, links) in enumerate(lines, start=1):
            if line.strip():
                location = f"{path}, line {number}"
                alignment = _parse_alignment(links, alignments_path, number)
                yield _check_text(_json_pair(line, keys, location)._replace(alignment=alignment), location)


def read_aligned(
    paths: tuple[str, str],
    *,
    settings: tuple[str, str] = ("data.source_path", "data.target_path"),
    alignments_path: str | None = None,
    limit: int | None = None,
) -> PairFile:
    """Read the pairs of two files with equally many lines. Lines that are empty in both are skipped.

    Args:
        paths: the source file and the target file.
        settings: the settings that give them, for error messages.
        alignments_path: file whose line i has the gold alignment of line i in Pharaoh format, such as
            `0-0 1-2`: source token 0 with target token 0, 1 with 2.
        limit: number of pairs to read; None for all.

    Raises:
        UserError: if a file cannot be read, the numbers of lines differ, or a line is empty on one side.
    """
    named = [*zip(settings, paths, strict=True), ("data.alignments_path", alignments_path)]

    def pairs() -> Iterator[Pair]:
        for number, (source, target, links) in enumerate(_read_lines(named), start=1):
            if source.strip() or target.strip():
                alignment = _parse_alignment(links, alignments_path, number)
                yield _check_text(Pair(source, target, alignment), f"{' and '.join(paths)}, line {number}")

    return _checked(pairs(), [path for _, path in named if path], limit)


def _checked(pairs: Iterator[Pair], files: Sequence[str], limit: int | None) -> PairFile:
    """Collect the pairs, or raise `UserError` if there are none."""
    collected = list(islice(pairs, limit))
    if not collected:
        raise UserError(f"{files[0]}: no sentence pairs. Provide a file with at least one pair")
    return PairFile(collected, tuple(Path(path) for path in files))


def _json_pair(line: str, keys: tuple[str, ...], location: str) -> Pair:
    """Return the pair of a JSON object: `{"de": …, "en": …}`, or the same under the key "translation"."""
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise UserError(f"{location}: not valid JSON ({reason}). Write one JSON object per line") from error
    if isinstance(record, dict) and isinstance(record.get("translation"), dict):
        record = record["translation"]
    if not isinstance(record, dict):
        raise UserError(f"{location}: a {type(record).__name__} in place of a JSON object per line")
    texts: list[str] = []
    for key in keys:
        if key not in record:
            raise UserError(
                f"{location}: no key {key!r} among {', '.join(map(str, record)) or 'no keys'}. Set "
                "data.languages=[SOURCE_KEY,TARGET_KEY]"
            )
        text = record[key]
        if not isinstance(text, str) or SURROGATE.search(text):
            kind = "text with a lone surrogate" if isinstance(text, str) else type(text).__name__
            raise UserError(f"{location}: {key!r} is {kind}, not text. Correct or remove the line")
        texts.append(text)
    return Pair(texts[0], texts[1])


def _existing(path: str) -> str | None:
    """Return the path, or the path with `.gz`, that exists; None if neither does."""
    return next((name for name in (path, f"{path}.gz") if exists(name)), None)


def _endings(prefix: str) -> list[str]:
    """Return the endings of the two files that start with a prefix; empty if there are not exactly two."""
    try:
        location = Path(prefix).expanduser()
        names = [path.name.removesuffix(".gz") for path in location.parent.iterdir() if path.is_file()]
    except (OSError, RuntimeError, ValueError):
        return []
    start = f"{location.name}."
    endings = sorted({name.removeprefix(start) for name in names if name.startswith(start)})
    return endings if len(endings) == 2 else []


def _read_lines(paths: Sequence[tuple[str, str | None]]) -> Iterator[tuple[str, ...]]:
    """Yield line i of each file for every i; a file that is None has empty lines.

    `paths` holds (setting, file). The first file must be given.
    """
    columns: list[list[str]] = []
    first = paths[0][1]
    for setting, path in paths:
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
                f"{path}, line {number}: {link[:50]!r} is not a link. Write SOURCE-TARGET with "
                "token numbers from 0, such as 0-0 1-2"
            )
        alignment.append((int(match[1]), int(match[2])))
    return tuple(alignment)


def _check_text(pair: Pair, location: str) -> Pair:
    """Return the pair, or raise `UserError` if one of its sides is empty."""
    for name, text in (("source", pair.source), ("target", pair.target)):
        if not text.strip():
            raise UserError(f"{location}: the {name} is empty. Add the text or remove the line")
    return pair
