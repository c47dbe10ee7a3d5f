"""Sentence pairs in files: tables, JSON lines or two aligned files, plain or gzipped; Parquet or Arrow.

Files that cannot be read or parsed, or have no pairs, raise `UserError`.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from attnlab.data.alignment import parse_links
from attnlab.data.corpus import Origin, Pair
from attnlab.data.datasets import arrow_files
from attnlab.data.features import with_features
from attnlab.data.mapped import gather
from attnlab.errors import UserError
from attnlab.files.cache import Key
from attnlab.files.digests import current_digest
from attnlab.files.reading import SURROGATE, count_lines, exists, read_lines

log = logging.getLogger(__name__)

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
HIDDEN = re.compile(r"(^|/)(\.[^./]|cache-[^/]*\.arrow)")  # Hidden as in a shell, or the cache of `datasets`
PATTERN = re.compile(r"[*?[]")  # A character of a pattern that matches several files
Fields = Sequence[str]  # The text of a line in each of the aligned files, or the line of a single file
Texts = tuple[str, Sequence[str]]  # A source, and its targets
NamedFile = tuple[str, str]  # The setting that gives a file, and its path


class PairFile(NamedTuple):
    """Pairs, with the files that they were read from."""

    pairs: Sequence[Pair]
    files: tuple[Path, ...]
    names: Sequence[str]  # `Origin.file` of each location


class LeftOutError(Exception):
    """Reason why a line has no pair, and the fix: its two arguments."""


class Part(NamedTuple):
    """A file, or two aligned files, and how to read their lines."""

    files: Sequence[NamedFile]
    parse: Callable[[Fields, Origin], Texts]  # returns the texts of a line
    log_first: Callable[[str, Origin], None] | None = None  # logs how the first line is read
    is_table: bool = False
    covered: bool = False  # whether targets are empty
    unit: str = "line"

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
    features_column: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        languages = self.languages
        if languages is not None and (
            isinstance(languages, str) or len(languages) != 2 or len({*languages}) != 2
        ):
            raise UserError(
                f"data.languages={languages} must be the source and the target language, such as [de,en]"
            )
        names = ("source_column", "target_column", "features_column")
        given = {name: getattr(self, name) for name in names}
        numbers = {column for column in self.columns if type(column) is int and column >= 0}
        if len(numbers) < len(self.columns) or (given["features_column"] is not None and not self.features):
            shown = " and ".join(f"data.{name}={each}" for name, each in given.items() if each is not None)
            raise UserError(f"{shown} must be different column numbers, counted from 0")

    @cached_property
    def features(self) -> tuple[int, ...]:
        """The columns of features; empty if there are none."""
        given = self.features_column
        return () if given is None else tuple(given) if isinstance(given, Sequence) else (given,)

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The columns of a table that are read."""
        return self.source_column, self.target_column, *self.features

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
            alignments: file whose line i has the gold alignment of line i in Pharaoh format, such as
                `0-0 1-2`: source token 0 with target token 0, 1 with 2.
            references: files with a further target of each line, or an empty line; None for none.
            limit: number of pairs to read; None for all.
            may_be_covered: accept a table without targets: its column is missing or empty in every row. The
                targets are then empty.
            cache: folder of the cache of large files; None to keep all pairs in memory.
        """
        paths = self.expand(location, setting)
        if not paths:
            raise UserError(f"{setting}={location} must be the path of a file")
        name = re.sub(r"^(data\.\w+)", r"\1_references", setting)
        if not isinstance(references, Sequence | None) or isinstance(references, str):
            raise UserError(f"{name}={references} must be a list of files, such as [a.txt,b.txt]")
        further = [(name, path) for path in references or ()]
        links = [("data.alignments_path", alignments)] if alignments else []
        for other, _ in [*further, *links] if len(paths) > 1 else ():
            raise UserError(f"{other} needs one file, and {setting} has {len(paths)}: join them")
        parts = [self._part(path, setting, may_be_covered, quiet=bool(further)) for path in paths]
        files = [path for part in parts for _, path in part.files]
        files += [path for _, path in [*further, *links]]

        def key() -> Key | None:
            digests = [(path, current_digest(path)) for path in files]
            if None in dict(digests).values():
                return None  # reading raises the error
            counts = len(further), len(links)
            layout = asdict(self)
            layout |= {"languages": [*(self.languages or ())], "features_column": [*self.features]}
            return {"files": digests, "settings": [layout, may_be_covered, limit, counts]}

        def pairs() -> Iterator[Pair]:
            remaining = limit
            for part in parts:
                size = 0
                for pair in _read_part(part, self, further, links, remaining):
                    yield pair
                    size += 1
                remaining = None if remaining is None else remaining - size
                if remaining == 0:
                    return

        noun = f"the pairs of {parts[0].name}" + f" and {len(parts) - 1} other files" * (len(parts) > 1)
        pairs_read = gather(pairs, cache=cache, key=key, noun=noun)
        return PairFile(pairs_read, tuple(map(Path, files)), [part.name for part in parts])

    def expand(self, location: Any, setting: str) -> list[str]:
        """Return the paths, or the prefixes of aligned files, of a location as of `read`."""
        is_list = isinstance(location, Sequence) and not isinstance(location, str)
        return [
            path for part in (location if is_list else [location]) for path in _expand(part, self, setting)
        ]

    def input_of(self, line: str, *, is_row: bool = False) -> str:
        """Return the part of a row that a model reads: the text, or the text, a tab and its features.

        A row without a target, of a covered test file, is one column shorter, or that column is empty. Text
        and features alone are taken in this order, unless the line `is_row` of a file that can be without a
        target. Several columns of features are joined to one by `;`.

        Raises:
            UserError: if a column is missing.
        """
        cells = line.split("\t")
        columns = [self.source_column, *self.features]
        without_target = len(cells) == max(self.columns) if is_row else len(cells) > len(columns)
        if without_target and len(cells) <= max(self.columns):
            columns = [column - (column > self.target_column) for column in columns]
        elif len(cells) <= len(columns):
            columns = [*range(len(cells))]
        if max(columns) >= len(cells):
            raise UserError(f"it has {len(cells)} columns, and column {max(columns)} (from 0) is read")
        text, *features = (cells[column] for column in columns)
        return "\t".join([text, ";".join(features)] if features else [text])

    def _part(self, location: str, setting: str, may_be_covered: bool, *, quiet: bool) -> Part:
        """Return how to read a file or two aligned files; `quiet` if it has targets elsewhere."""
        if self.languages is not None:
            prefixed = [f"{location}.{language}" for language in self.languages]
            existing = [next(filter(exists, (path, f"{path}.gz")), None) for path in prefixed]
            if any(existing) or not exists(location):
                self._refuse_features(setting, location)
                paths = [there or path for there, path in zip(existing, prefixed, strict=True)]
                return Part([(setting, path) for path in paths], lambda texts, _: (texts[0], [texts[1]]))
        files = [(setting, location)]
        is_arrow = location.endswith(arrow_files.SUFFIXES)
        if is_arrow or location.lower().removesuffix(".gz").endswith(JSON_SUFFIXES):
            self._refuse_features(setting, location)
            return Part(files, self._parse_json, self._log_first_object, unit="row" if is_arrow else "line")
        covered = may_be_covered and self._is_covered(read_lines(location, setting=setting))
        if covered and not quiet:
            log.info("%s: %s has no targets: outputs are written, and not scored", setting, location)
        parse = partial(self._parse_row, covered=covered)
        return Part(files, parse, self._log_first_row, is_table=True, covered=covered)

    def _refuse_features(self, setting: str, location: str) -> None:
        if self.features:
            raise UserError(
                f"{setting}={location}: data.features_column needs a table: write source, features and "
                "target in columns separated by tabs"
            )

    def _log_first_row(self, row: str, origin: Origin) -> None:
        """Log the header, or how the columns of the first row are read."""
        cells = row.split("\t")
        if self.header:
            log.info("%s: %s is the header", origin, ", ".join(map(repr, cells)))
            return
        used = [cells[column][:50] for column in self.columns if column < len(cells)]
        log.info("%s is read as the first pair: %s", origin, ", ".join(map(repr, used)))
        for column, cell in enumerate(cells):
            if column not in self.columns:
                log.info("%s: column %d is not read (%r)", origin, column, cell[:50])

    def _log_first_object(self, row: str, origin: Origin) -> None:
        """Log the keys of the first object that are not read."""
        with suppress(ValueError, RecursionError):  # `_parse_json` reports it
            record = _translation(json.loads(row))
            keys = record if isinstance(record, dict) else ()
            for key in [each for each in keys if each not in (self.languages or ("source", "target"))]:
                log.info("%s: the key %r is not read", origin, key)

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

    def _parse_row(self, texts: Fields, origin: Origin, *, covered: bool) -> Texts:
        cells = texts[0].split("\t")
        if covered:
            try:
                source, tab, features = self.input_of(texts[0], is_row=True).partition("\t")
            except UserError as error:
                raise LeftOutError("a column is missing", str(error)) from error
            if self.features and not tab:
                raise LeftOutError("the features are missing", "add a tab and, if any, the features")
            target = ""
        elif len(cells) <= max(self.columns):
            count = f"{len(cells)} column{'s' * (len(cells) > 1)}"
            settings = " and ".join(f"data.{name}_column" for name in ("source", "target", "features"))
            fix = f"expected at least {max(self.columns) + 1}. Separate columns by tabs"
            fix += f", or set {settings}" * (len(cells) > 1)
            raise LeftOutError(count, fix)
        else:
            source, target = cells[self.source_column], cells[self.target_column]
            features = ";".join(cells[column] for column in self.features)
        if not self.features or not source.strip():
            return source, [target]
        try:
            return with_features(source, features), [target]
        except UserError as error:
            raise LeftOutError("a bracket of the features has no counterpart", str(error)) from error

    def _parse_json(self, texts: Fields, origin: Origin) -> Texts:
        """Return the texts of an object `{"de": …, "en": …}`, or the same under the key "translation"."""
        try:
            record = json.loads(texts[0])
        except (ValueError, RecursionError) as error:
            raise UserError(f"{origin}: not valid JSON ({error}). Write one JSON object per line") from error
        record = _translation(record)
        if not isinstance(record, dict):
            raise UserError(f"{origin}: a {type(record).__name__} in place of a JSON object per line")
        keys = self.languages or ("source", "target")
        for key in keys:
            if key not in record:
                raise UserError(
                    f"{origin}: no key {key!r} among {', '.join(map(str, record)) or 'no keys'}. Set "
                    "data.languages=[SOURCE_KEY,TARGET_KEY]"
                )
        source, target = (record[key] for key in keys)
        targets = [target]
        if isinstance(target, list) and target:  # several references, of which empty ones are none
            targets = [text for text in target if text is not None and text != ""] or [""]
        if None in (source, *targets):
            raise LeftOutError("a text is null", "add the text or remove the line")
        for key, text in ((keys[0], source), *((keys[1], text) for text in targets)):
            if not isinstance(text, str) or SURROGATE.search(text):
                problem = "text with a lone surrogate" if isinstance(text, str) else type(text).__name__
                raise UserError(f"{origin}: {key!r} is {problem}, not text. Correct or remove the line")
        return source, targets


def _translation(record: Any) -> Any:
    """Return the object with the texts: that under the key "translation" if there is one."""
    inner = record.get("translation") if isinstance(record, dict) else None
    return inner if isinstance(inner, dict) else record


def _read_part(
    part: Part, layout: Layout, further: Sequence[NamedFile], links: Sequence[NamedFile], limit: int | None
) -> Iterator[Pair]:
    """Yield the pairs of each line of a part, one for each of its targets, and log the lines that have none.

    Raises:
        UserError: if more lines have no pair than have one.
    """
    name, count = part.name, len(part.files)
    lines = _read_lines([*part.files, *further, *links])
    size = dropped = width = 0
    first_row = first_error = None
    empty: list[int] = []
    notes: dict[str, list[int]] = {}  # numbers of lines by what is logged of them
    for number, line in enumerate(lines, start=1):
        if size == limit:
            for _ in lines if len(line) > 1 else ():  # a file may have fewer lines than the others
                pass
            break
        texts = line[:count]
        if not "".join(texts).strip():
            empty.append(number)
            continue
        origin = Origin(name, number, part.unit)
        if first_row is None:
            first_row = number
            if part.log_first is not None:
                part.log_first(texts[0], origin)
            if part.is_table and layout.header:
                continue
        try:
            source, targets = part.parse(texts, origin)
            if not source.strip() or not (part.covered or all(map(str.strip, targets))):
                side = "target" if source.strip() else "source"
                raise LeftOutError(f"the {side} is empty", "add the text or remove the line")
        except LeftOutError as error:
            reason, fix = error.args
            dropped += 1
            notes.setdefault(f"left out {{}}: {reason}", []).append(number)
            first_error = first_error or f"{origin}: {reason}, {fix}"
            continue
        if part.is_table and (columns := 1 + texts[0].count("\t")) != width:
            if width:
                note = f"{{}}: another number of columns than line {first_row}, which has {width}"
                notes.setdefault(note, []).append(number)
            else:
                first_row, width = number, columns
        more = [target for target in line[count : count + len(further)] if target.strip()] if further else []
        if further and part.covered:
            if not more:
                notes.setdefault("left out {}: there is no reference", []).append(number)
                continue
            targets = []
        alignment = None
        if links:
            parsed = parse_links(line[-1], f"{links[0][1]}, line {number}")
            alignment = tuple((source_token, target_token) for source_token, _, target_token in parsed)
        first, *others = [*targets, *more]  # the alignment is that of the first target of the line
        pairs = [Pair(source, first, alignment if targets else None, origin=origin)]
        pairs += [Pair(source, target, origin=origin) for target in others]
        for pair in pairs[: None if limit is None else limit - size]:
            size += 1
            yield pair
    if first_error and dropped > size:
        raise UserError(first_error)
    if not size:
        raise UserError(f"{part.files[0][1]}: no sentence pairs. Provide a file with at least one pair")
    if empty:
        log.info("%s: skipped %s", name, count_lines("empty line", empty))
    for note, numbers in notes.items():
        log.warning("%s: %s", name, note.format(count_lines("line", numbers)))


def _expand(location: Any, layout: Layout, setting: str) -> list[str]:
    """Return the paths, or the prefixes of aligned files, that match a pattern, in alphabetical order."""
    if not isinstance(location, str) or not location:
        raise UserError(f"{setting}={location} must be the path of a file")
    endings = [f".{layout.languages[0]}", f".{layout.languages[0]}.gz"] if layout.languages else []
    if not PATTERN.search(location) or any(exists(f"{location}{ending}") for ending in ("", *endings)):
        return [location]

    def shown(match: Path) -> bool:
        hidden = HIDDEN.search(match.as_posix())
        return not hidden or HIDDEN.search(location) is not None

    def matches(ending: str) -> set[str]:
        with suppress(OSError, RuntimeError, ValueError):  # not a valid path
            path = Path(f"{location}{ending}").expanduser()
            root = Path(path.anchor)
            paths = root.glob(str(path.relative_to(root)))
            return {str(match).removesuffix(ending) for match in paths if match.is_file() and shown(match)}
        return set()

    matching = set().union(*map(matches, endings)) or matches("")
    if not matching:
        raise UserError(f"{setting}={location}: no file matches the pattern. Check the path")
    return sorted(matching)


def _read_lines(files: Sequence[NamedFile]) -> Iterator[Fields]:
    """Yield line i of each file, for every i."""
    contents = [
        (arrow_files.read_rows if path.endswith(arrow_files.SUFFIXES) else read_lines)(path, setting=setting)
        for setting, path in files
    ]
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
