"""Sentence pairs in files: tab-separated text, JSON lines, or two aligned files, each plain or gzipped.

Files that cannot be read or parsed, or have no pairs, raise `UserError`.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.data.alignment import parse_links
from attnlab.data.corpus import Origin, Pair
from attnlab.data.features import features_of, with_features
from attnlab.data.mapped import gather
from attnlab.errors import UserError
from attnlab.files.cache import Key
from attnlab.files.digests import current_digest
from attnlab.files.reading import SURROGATE, count_lines, exists, read_lines

log = logging.getLogger(__name__)

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
PATTERN = re.compile(r"[*?[]")
"""A character of a pattern that matches several files."""
MANY_FEATURES = 100
"""A file with at least this many features, most of them different, has probably none."""
COLUMN_NAMES = {"source", "target", "lemma", "form", "features", "word", "pronunciation", "token", "norm"}
"""Names that a column of sentence pairs often has."""


class PairFile(NamedTuple):
    """Pairs, with the files that they were read from."""

    pairs: Sequence[Pair]
    files: tuple[Path, ...]


class LeftOutError(Exception):
    """Reason why a line has no pair, and the fix: its two arguments."""


class Columns:
    """Lines of a table whose number of columns differs from that of the first line; as a string, a message.

    Attributes:
        others: the numbers of these lines.
    """

    def __init__(self) -> None:
        self.first: tuple[int, int] | None = None  # number of the first line, and of its columns
        self.others: list[int] = []

    def count(self, number: int, line: str) -> None:
        """Count the columns of a line."""
        width = 1 + line.count("\t")
        self.first = self.first or (number, width)
        if width != self.first[1]:
            self.others.append(number)

    def __str__(self) -> str:
        first, width = self.first or (0, 0)
        lines = count_lines("line", self.others)
        return f"{lines}: another number of columns than line {first}, which has {width}"


class FeatureCounts:
    """Number of features of pairs, and the different ones of them."""

    def __init__(self) -> None:
        self.total = 0
        self.different: dict[str, None] = {}

    def count(self, pair: Pair) -> None:
        """Count the features of a pair."""
        features = features_of(pair.source)
        self.total += len(features)
        self.different |= dict.fromkeys(features)

    def log_rare(self, name: str, column: int, lines: int) -> None:
        """Warn if most features occur once, as words do: the column may be that of the forms."""
        if self.total >= MANY_FEATURES and 2 * len(self.different) > self.total:
            log.warning(
                "%s: column %d has %d different features in %d lines, such as %r. If it is not the column of "
                "features, set data.features_column and data.target_column",
                name,
                column,
                len(self.different),
                lines,
                next(iter(self.different)),
            )


Fields = tuple[str, ...]
"""The text of a line in each of the aligned files, or the line of a single file."""


class Part(NamedTuple):
    """A file, or two aligned files, and how to read their lines."""

    files: Sequence[tuple[str, str]]  # the setting that gives each file, and its path
    parse: Callable[[Fields, Origin], list[Pair]]  # returns the pairs of a line
    table: "Layout | None" = None  # columns and header, if the file is a table
    covered: bool = False  # whether targets may be empty
    keys: Sequence[str] | None = None  # of JSON objects
    # files with a further target of each line, or an empty line
    further: Sequence[tuple[str, str]] = ()

    @property
    def name(self) -> str:
        """The paths, as `Origin.file`."""
        return " and ".join(path for _, path in self.files)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Places of the source and the target in files of pairs; the settings of `conf/data/pairs.yaml`."""

    languages: Sequence[str] | None = None
    header: bool = False
    source_column: int = 0
    target_column: int = 1
    features_column: int | None = None

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
        columns = self.columns
        valid = all(type(column) is int and column >= 0 for column in columns)
        if not valid or len({*columns}) < len(columns):
            names = ("source_column", "target_column", "features_column")
            given = [f"data.{name}={column}" for name, column in zip(names, columns, strict=False)]
            raise UserError(f"{' and '.join(given)} must be different column numbers, counted from 0")

    def read(
        self,
        location: Any,
        *,
        setting: str,
        alignments: str | None = None,
        references: Any = None,
        limit: int | None = None,
        may_be_covered: bool = False,
        cache: Path | None = None,
    ) -> PairFile:
        """Read the pairs of a file, or of two aligned files that `location` is the prefix of; or of several.

        Args:
            location: path of a table or of JSON lines (`.jsonl`, `.ndjson` or `.json`), or the prefix of two
                aligned files whose endings are the languages; each file may also end in `.gz`. Or a pattern
                such as "corpus/*.tsv.gz", or several of these: their pairs follow each other.
            setting: the setting that gives the location, such as "data.train", for error messages.
            alignments: file with the gold alignment of each line; see `read_aligned`.
            references: files with a further target of each line, or an empty one; None for none.
            limit: number of pairs to read; None for all.
            may_be_covered: accept a table without targets: its column is missing or empty in every row. The
                targets are then empty.
            cache: folder of the cache of large files; None to keep all pairs in memory.
        """
        locations = (
            location if isinstance(location, Sequence) and not isinstance(location, str) else [location]
        )
        paths = [path for part in locations for path in self._expand(part, setting)]
        if not paths:
            raise UserError(f"{setting}={location} must be the path of a file")
        name = re.sub(r"^(data\.\w+)", r"\1_references", setting)
        if not isinstance(references, Sequence | None) or isinstance(references, str):
            raise UserError(f"{name}={references} must be a list of files, such as [a.txt,b.txt]")
        if references and len(paths) > 1:
            raise UserError(f"{name} needs one file, and {setting} has {len(paths)}: join them")
        further = [(name, path) for path in references or ()]
        if alignments and len(paths) > 1:
            raise UserError(f"data.alignments_path needs one file, and {setting} has {len(paths)}: join them")
        parts = [
            self._part(path, setting, further, may_be_covered=may_be_covered)._replace(further=further)
            for path in paths
        ]
        return _read(parts, alignments=alignments, limit=limit, cache=cache)

    def _expand(self, location: Any, setting: str) -> list[str]:
        """Return the paths, or the prefixes of aligned files, that match a pattern, in alphabetical order."""
        if not isinstance(location, str) or not location:
            raise UserError(f"{setting}={location} must be the path of a file")
        if not PATTERN.search(location) or exists(location):
            return [location]
        endings = [f".{self.languages[0]}", f".{self.languages[0]}.gz"] if self.languages else []
        prefixes = {
            path.removesuffix(ending) for ending in endings for path in _matches(f"{location}{ending}")
        }
        paths = prefixes or _matches(location)
        if not paths:
            raise UserError(f"{setting}={location}: no file matches the pattern. Check the path")
        return sorted(paths)

    def _part(self, location: str, setting: str, further: Sequence[Any], *, may_be_covered: bool) -> Part:
        """Return how to read a file or two aligned files."""
        if self.languages is not None:
            source, target = (f"{location}.{language}" for language in self.languages)
            existing = _existing(source), _existing(target)
            if any(existing) or not exists(location):
                paths = (existing[0] or source, existing[1] or target)
                return Part([(setting, path) for path in paths], _parse_aligned)
        elif not exists(location) and (endings := _endings(location)):
            raise UserError(
                f"{setting}: {location} does not exist. For the aligned files {location}.{endings[0]} and "
                f"{location}.{endings[1]} set data.languages=[{','.join(endings)}]"
            )
        files = [(setting, location)]
        if location.removesuffix(".gz").endswith(JSON_SUFFIXES):
            return Part(files, self._parse_json, keys=self.languages and [*self.languages])
        covered = may_be_covered and self._is_covered(read_lines(location, setting=setting))
        if covered and not further:
            log.info("%s: %s has no targets: outputs are written, and not scored", setting, location)
        parse = self._parse_covered if covered else self._parse_row
        return Part(files, parse, table=self, covered=covered)

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of a table that are read."""
        columns = (self.source_column, self.target_column)
        return columns if self.features_column is None else (*columns, self.features_column)

    def input_of(self, line: str) -> str:
        """Return the part of a row that a model reads: the text, or the text, a tab and its features.

        A row without a target, of a covered test file, is one column shorter, or that column is empty. Text
        and features alone, in this order, are taken as they are.

        Raises:
            UserError: if a column is missing.
        """
        cells = line.split("\t")
        read = [self.source_column, *([] if self.features_column is None else [self.features_column])]
        if len(cells) <= len(read):
            return line
        columns = read if len(cells) > max(self.columns) else [self._covered(column) for column in read]
        if max(columns) >= len(cells):
            raise UserError(f"it has {len(cells)} columns, and column {max(columns)} (from 0) is read")
        return "\t".join(cells[column] for column in columns)

    def _covered(self, column: int) -> int:
        """Return the place of a column in files without the column of the target."""
        return column - (column > self.target_column)

    def _parse_row(self, texts: Fields, origin: Origin) -> list[Pair]:
        cells = texts[0].split("\t")
        if len(cells) <= max(self.columns):
            raise LeftOutError(
                "1 column" if len(cells) == 1 else f"{len(cells)} columns",
                f"expected at least {max(self.columns) + 1}. Separate columns by tabs, or set "
                "data.source_column and data.target_column"
                + " and data.features_column"
                * (self.features_column is not None),
            )
        features = None if self.features_column is None else cells[self.features_column]
        return [Pair(_read_source(cells[self.source_column], features), cells[self.target_column])]

    def _is_covered(self, lines: Iterator[str]) -> bool:
        """Return whether no row of a table has a target."""
        rows = (line.split("\t") for line in lines if line.strip())
        if self.header:
            next(rows, None)
        missing = empty = True
        for row in rows:
            missing = missing and len(row) <= max(self.columns)
            empty = empty and (len(row) <= self.target_column or not row[self.target_column].strip())
            if not missing and not empty:
                return False
        return True

    def _parse_covered(self, texts: Fields, origin: Origin) -> list[Pair]:
        try:
            source, tab, features = self.input_of(texts[0]).partition("\t")
        except UserError as error:
            raise LeftOutError("a column is missing", str(error)) from error
        if self.features_column is None:
            return [Pair(source, "")]
        if not tab:
            raise LeftOutError("the features are missing", "add a tab and, if any, the features")
        return [Pair(_read_source(source, features), "")]

    def _parse_json(self, texts: Fields, origin: Origin) -> list[Pair]:
        """Return the pair of an object `{"de": …, "en": …}`, or the same under the key "translation".

        The target may be a list of texts: each is one of a pair with this source.
        """
        try:
            record = json.loads(texts[0])
        except (json.JSONDecodeError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
            raise UserError(f"{origin}: not valid JSON ({reason}). Write one JSON object per line") from error
        if isinstance(record, dict) and isinstance(record.get("translation"), dict):
            record = record["translation"]
        if not isinstance(record, dict):
            raise UserError(f"{origin}: a {type(record).__name__} in place of a JSON object per line")
        sides: list[list[str]] = []
        for key in self.languages or ("source", "target"):
            if key not in record:
                raise UserError(
                    f"{origin}: no key {key!r} among {', '.join(map(str, record)) or 'no keys'}. Set "
                    "data.languages=[SOURCE_KEY,TARGET_KEY]"
                )
            listed = record[key] if sides and record[key] and isinstance(record[key], list) else [record[key]]
            for text in listed:
                if not isinstance(text, str) or SURROGATE.search(text):
                    problem = "text with a lone surrogate" if isinstance(text, str) else type(text).__name__
                    raise UserError(f"{origin}: {key!r} is {problem}, not text. Correct or remove the line")
            sides.append(listed)
        return [Pair(sides[0][0], target) for target in sides[1]]


def read_aligned(
    paths: tuple[str, str],
    settings: tuple[str, str] = ("data.source_path", "data.target_path"),
    *,
    alignments: str | None = None,
    limit: int | None = None,
    cache: Path | None = None,
) -> PairFile:
    """Read the pairs of two files with equally many lines.

    Args:
        paths: the source file and the target file.
        settings: the settings that give them, for error messages.
        alignments: file whose line i has the gold alignment of line i in Pharaoh format, such as `0-0 1-2`:
            source token 0 with target token 0, 1 with 2.
        limit: number of pairs to read; None for all.
        cache: folder of the cache of large files; None to keep all pairs in memory.
    """
    part = Part(list(zip(settings, paths, strict=True)), _parse_aligned)
    return _read([part], alignments=alignments, limit=limit, cache=cache)


def _parse_aligned(texts: Fields, origin: Origin) -> list[Pair]:
    return [Pair(texts[0], texts[1])]


def _read(
    parts: Sequence[Part], *, alignments: str | None, limit: int | None, cache: Path | None
) -> PairFile:
    """Read the pairs of all parts, and log the lines that have none.

    Args:
        parts: the files.
        alignments: file with the gold alignment of each line of a single part.
        limit: number of pairs to read; None for all.
        cache: folder of the cache of large files; None to keep all pairs in memory.

    Raises:
        UserError: if a part has more lines without a pair than with one.
    """
    paths = [path for part in parts for _, path in (*part.files, *part.further)]
    paths += [alignments] if alignments else []

    def describe() -> Key | None:
        digests = [(path, current_digest(path)) for path in paths]
        if None in dict(digests).values():
            return None  # reading raises the error
        settings = [
            (part.parse.__name__, len(part.files), part.keys, part.table and asdict(part.table), part.covered)
            for part in parts
        ]
        further = {"further": len(parts[0].further)} if parts[0].further else {}
        return {
            **{"files": digests, "parts": settings, "limit": limit, "aligned": alignments is not None},
            **further,
        }

    def pairs() -> Iterator[Pair]:
        remaining = limit
        for part in parts:
            size = 0
            for pair in _parse(part, alignments=alignments, limit=remaining):
                yield pair
                size += 1
            remaining = None if remaining is None else remaining - size
            if remaining == 0:
                return

    noun = f"the pairs of {parts[0].name}" + f" and {len(parts) - 1} other files" * (len(parts) > 1)
    return PairFile(gather(pairs(), cache=cache, key=describe, noun=noun), tuple(map(Path, paths)))


def _parse(part: Part, *, alignments: str | None, limit: int | None) -> Iterator[Pair]:
    """Yield the pairs of each line of a part, one for each of its targets; for the arguments see `_read`."""
    files, parse, table, covered, further = part.files, part.parse, part.table, part.covered, part.further
    name = part.name
    links_file = [("data.alignments_path", alignments)] if alignments else []
    lines = _read_lines([*files, *further, *links_file])
    size = 0
    empty: list[int] = []
    left_out: dict[str, list[int]] = {}
    columns = Columns()
    features = FeatureCounts()
    first_error = None
    first = True
    for number, line in enumerate(lines, start=1):
        if size == limit:
            for _ in lines if len(line) > 1 else ():  # a file may have fewer lines than the others
                pass
            break
        texts = line[: len(files)]
        if not any(text.strip() for text in texts):
            empty.append(number)
            continue
        is_first, first = first, False
        origin = Origin(name, number)
        if is_first and table is not None:
            _log_first_row(texts[0].split("\t"), table, f"{name}, line {number}")
            if table.header:
                continue
        try:
            read = [_check_text(pair, covered=covered) for pair in parse(texts, origin)]
        except LeftOutError as error:
            reason, fix = error.args
            left_out.setdefault(reason, []).append(number)
            first_error = first_error or f"{origin}: {reason}, {fix}"
            continue
        if table is not None:
            columns.count(number, texts[0])
        alignment = None
        if alignments:
            links = parse_links(line[-1], f"{alignments}, line {number}")
            alignment = tuple((source, target) for source, _, target in links)
        if table is not None and table.features_column is not None:
            features.count(read[0])
        targets = filter(str.strip, line[len(files) : len(files) + len(further)])
        more = [replace(read[0], target=target, origin=origin) for target in targets]
        if not (covered and more):
            more = [*(replace(pair, alignment=alignment, origin=origin) for pair in read), *more]
        for pair in more[: None if limit is None else limit - size]:
            size += 1
            yield pair
    if first_error and sum(map(len, left_out.values())) > size:
        raise UserError(first_error)
    if not size:
        raise UserError(f"{files[0][1]}: no sentence pairs. Provide a file with at least one pair")
    if empty:
        log.info("%s: skipped %s", name, count_lines("empty line", empty))
    for reason, numbers in left_out.items():
        log.warning("%s: left out %s: %s", name, count_lines("line", numbers), reason)
    if table is not None and table.features_column is not None:
        features.log_rare(name, table.features_column, size)
    if columns.others:
        log.warning("%s: %s", name, columns)


def _read_source(text: str, features: str | None) -> str:
    """Return a source with its features, if there is any text."""
    try:
        return text if features is None or not text.strip() else with_features(text, features)
    except UserError as error:
        raise LeftOutError("a bracket of the features has no counterpart", str(error)) from error


def _log_first_row(cells: list[str], table: Layout, location: str) -> None:
    """Log whether the first row is read as a pair, if that is in doubt, and the columns that are not read."""
    used = [cells[column] for column in table.columns if column < len(cells)]
    names = [cell.strip().casefold() for cell in used]
    if table.header:
        log.info("%s: %s is the header", location, ", ".join(map(repr, cells)))
    elif all(name.isdigit() for name in names) or COLUMN_NAMES.intersection(names):
        log.warning(
            "%s: %s is read as a pair. If it is a header, set data.header=true",
            location,
            " and ".join(map(repr, used)),
        )
    for column, cell in enumerate(cells):
        if column not in table.columns:
            log.info("%s: column %d is not read (%r)", location, column, cell[:50])


def _matches(pattern: str) -> set[str]:
    """Return the paths of the files that match a pattern; none if it is not valid."""
    try:
        path = Path(pattern).expanduser()
        root = Path(path.anchor)
        return {str(match) for match in root.glob(str(path.relative_to(root))) if match.is_file()}
    except (OSError, RuntimeError, ValueError):
        return set()


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


def _read_lines(files: Sequence[tuple[str, str]]) -> Iterator[Fields]:
    """Yield line i of each file, for every i."""
    contents = [read_lines(path, setting=setting) for setting, path in files]
    for number, lines in enumerate(zip_longest(*contents), start=1):
        if None in lines:
            sizes = [
                number - 1 if line is None else number + sum(1 for _ in rest)
                for line, rest in zip(lines, contents, strict=True)
            ]
            other = next(place for place, size in enumerate(sizes) if size != sizes[0])
            raise UserError(
                f"{files[0][1]} has {sizes[0]} lines, but {files[other][1]} has {sizes[other]}. The files "
                "must have the same number of lines"
            )
        yield lines


def _check_text(pair: Pair, *, covered: bool) -> Pair:
    for side, text in (("source", pair.source), ("target", pair.target)):
        if not text.strip() and not (covered and side == "target"):
            raise LeftOutError(f"the {side} is empty", "add the text or remove the line")
    return pair
