"""Parallel text with its own training, validation and test files, or split at random."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from attnlab.data.corpus import Corpus, Pair, split
from attnlab.data.datasets.pair_files import Layout, read_aligned
from attnlab.data.filtering import filter_pairs
from attnlab.errors import UserError
from attnlab.settings import Count, FilePath, Fraction, Size

log = logging.getLogger(__name__)

TestSets = list[Pair] | dict[str, list[Pair]]


def load(
    *,
    train: FilePath | None = None,
    val: FilePath | None = None,
    test: str | Mapping[str, str] | None = None,
    languages: Sequence[str] | None = None,
    path: FilePath | None = None,
    source_path: FilePath | None = None,
    target_path: FilePath | None = None,
    alignments_path: str | Mapping[str, Any] | None = None,
    header: bool | None = None,
    source_column: Count = 0,
    target_column: Count = 1,
    limit: Size | None = None,
    max_tokens: Size | None = None,
    max_ratio: Annotated[float, Ge(1)] | None = None,
    val_fraction: Fraction = 0.1,
    test_fraction: Fraction = 0.1,
    seed: Count = 0,
) -> Corpus:
    """Load sentence pairs, and split off at random the validation and test pairs that have no file.

    Give `train`, or `path`, or both `source_path` and `target_path`. Empty lines are skipped. Pairs whose
    sources differ only in case, punctuation, symbols and white space stay in one split. (A tokenizer that
    drops more, such as digits, can still make sources of different splits equal.) Given files are used as
    they are.

    Args:
        train: training pairs: a tab-separated file as exported by Tatoeba and Anki (quotation marks are
            text), JSON lines, or the prefix of two aligned files; see `Layout.read`.
        val: validation pairs, likewise; None to split them off.
        test: test pairs, likewise, or several test sets by name; None to split them off.
        languages: [de, en]: `train=prefix` reads prefix.de and prefix.en, or these keys of JSON lines; None
            for a table.
        path: file that is split into training, validation and test pairs, of the kinds of `train`.
        source_path: file with one source sentence per line.
        target_path: file whose line i is the translation of line i of `source_path`.
        alignments_path: gold alignments of the lines of the training file, or of the file that is split; see
            `read_aligned`. Or such a file for several of "train", "val" and "test"; named test sets have
            theirs by name. The tokenizer must produce the aligner's tokens: `whitespace`, or `words` if it
            drops no token.
        header: see `Layout`.
        source_column: column of the source in a table, from 0.
        target_column: column of the target in a table, from 0.
        limit: number of pairs to read for training, or to split; None for all.
        max_tokens: longest source or target of a training pair, in white-space separated tokens; None for
            any.
        max_ratio: largest ratio of the lengths of a training pair; None for any.
        val_fraction: share of the pairs in a validation split that is split off.
        test_fraction: share of the pairs in a test split that is split off.
        seed: seed of the split.

    Raises:
        UserError: if a setting is missing or invalid, or a file cannot be read or parsed.
    """
    if limit is not None and limit < 1:
        raise UserError(f"data.limit={limit} must be at least 1, or null for all pairs")
    layout = Layout(
        languages=languages, header=header, source_column=source_column, target_column=target_column
    )
    links = alignment_files(
        alignments_path, splits={"train": path or train or source_path, "val": val, "test": test}
    )
    common: dict[str, Any] = {"alignments_path": links.get("train"), "limit": limit}
    if (location := path or train) and not (path and train) and not (source_path or target_path):
        pairs, files = layout.read(location, setting="data.path" if path else "data.train", **common)
    elif source_path and target_path and not (path or train):
        pairs, files = read_aligned((source_path, target_path), **common)
    else:
        raise UserError(
            "data: no text is given. Set data.path=FILE to a file that is split at random, or "
            "data.train=FILE, data.val=FILE and data.test=FILE, or data.source_path=FILE and "
            "data.target_path=FILE to two aligned files"
        )
    val_pairs, val_files = read_validation_set(val, layout, links.get("val"))
    test_sets, test_files = read_test_sets(test, layout, links.get("test"))
    return assemble(
        pairs,
        None if val is None else val_pairs,
        None if test is None else test_sets,
        files=(*files, *val_files, *test_files),
        limits={"max_tokens": max_tokens, "max_ratio": max_ratio},
        val_fraction=val_fraction,
        test_fraction=test_fraction,
        seed=seed,
    )


def alignment_files(alignments_path: Any, *, splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the alignment files by split. A single file is that of the first split.

    Args:
        alignments_path: `data.alignments_path`.
        splits: the pairs of each split that can have alignments; None for a split without a file.

    Raises:
        UserError: if alignments are given for something that has no file of pairs.
    """
    if alignments_path is None:
        return {}
    if not isinstance(alignments_path, Mapping):
        return {next(iter(splits)): alignments_path}
    for name, file in alignments_path.items():
        if not isinstance(file, str | Mapping | None) or (name != "test" and isinstance(file, Mapping)):
            raise UserError(f"data.alignments_path.{name}={file} must be the path of a file")
        if splits.get(name) is None:
            raise UserError(
                f"data.alignments_path.{name}: there is no data.{name}. Give alignments of the files of "
                f"{', '.join(name for name, location in splits.items() if location is not None)}"
            )
    return dict(alignments_path)


def read_validation_set(
    val: Any, layout: Layout, alignments: str | None = None
) -> tuple[list[Pair], tuple[Path, ...]]:
    """Read the validation set, with the files that it was read from; empty for None.

    Raises:
        UserError: if it cannot be read or parsed.
    """
    return ([], ()) if val is None else layout.read(val, setting="data.val", alignments_path=alignments)


def read_test_sets(test: Any, layout: Layout, alignments: Any = None) -> tuple[TestSets, tuple[Path, ...]]:
    """Read one test set, or several by name, with the files that they were read from; empty for None.

    Args:
        test: `data.test`.
        layout: of the files.
        alignments: the alignment file of the test set, or those of some of the named test sets by name.

    Raises:
        UserError: if no test set is given, or one cannot be read or parsed.
    """
    if test is None:
        return [], ()
    if not isinstance(test, Mapping):
        return layout.read(test, setting="data.test", alignments_path=alignments)
    if not test:
        raise UserError("data.test={}: give a file, or several as {NAME: FILE, …}")
    links = {} if alignments is None else alignments
    if not isinstance(links, Mapping) or not links.keys() <= test.keys():
        raise UserError(
            f"data.alignments_path.test={alignments}: give the files by the names of the test sets, such as "
            f"{{{next(iter(test))}: FILE}}"
        )
    read = {
        str(name): layout.read(path, setting=f"data.test.{name}", alignments_path=links.get(name))
        for name, path in test.items()
    }
    files = tuple(file for pair_file in read.values() for file in pair_file.files)
    return {name: pair_file.pairs for name, pair_file in read.items()}, files


def assemble(
    pairs: list[Pair],
    val: list[Pair] | None,
    test: TestSets | None,
    *,
    files: tuple[Path, ...],
    limits: Mapping[str, Any],
    val_fraction: float,
    test_fraction: float,
    seed: int,
) -> Corpus:
    """Return the corpus of these pairs; validation and test pairs are split off where there are none.

    Args:
        pairs: pairs for training and for the splits that are not given.
        val: validation pairs; None to split them off.
        test: test pairs, or several test sets by name; None to split them off.
        files: files that the pairs were read from.
        limits: `max_tokens` and `max_ratio` of the training pairs; see `attnlab.data.filtering`.
        val_fraction: share of the pairs in a validation split that is split off.
        test_fraction: share of the pairs in a test split that is split off.
        seed: seed of the split.

    Raises:
        UserError: if a split is empty because equal sources stay together.
    """
    train, val_part, test_part = _split_off(
        pairs,
        val_fraction=val_fraction if val is None else 0.0,
        test_fraction=test_fraction if test is None else 0.0,
        seed=seed,
    )
    return Corpus(
        train=filter_pairs(train, **limits),
        val=val_part if val is None else val,
        test=test_part if test is None else test,
        files=files,
    )


def _split_off(
    pairs: list[Pair], *, val_fraction: float, test_fraction: float, seed: int
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Split pairs into training, validation and test; a fraction of 0 gives no pairs.

    Raises:
        UserError: if a split is empty because equal sources stay together.
    """
    if val_fraction == test_fraction == 0:
        return pairs, [], []
    groups = _source_keys([pair.source for pair in pairs])
    train, val, test = split(
        pairs, val_fraction=val_fraction, test_fraction=test_fraction, seed=seed, groups=groups
    )
    expected = {"training": (train, 1.0), "validation": (val, val_fraction), "test": (test, test_fraction)}
    empty = [name for name, (part, fraction) in expected.items() if fraction > 0 and not part]
    if empty:
        message = (
            f"{' and '.join(empty)} data is empty: {len(pairs)} pairs with {len(set(groups))} different "
            "sources (without case, punctuation and white space), and pairs with equal sources stay in one "
            "split. Provide more data, or separate files by data.train, data.val and data.test"
        )
        if empty != ["test"]:
            raise UserError(message)
        log.warning("%s", message)
    return train, val, test


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
