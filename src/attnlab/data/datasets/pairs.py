"""Sentence pairs with files for training, validation and test, or split at random."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.pair_files import Layout, PairFile
from attnlab.data.mapped import count_by_file
from attnlab.data.splitting import TestSets, split_off
from attnlab.errors import UserError
from attnlab.settings import AtLeastOne, Count, FilePath, FolderPath, Fraction, Size

log = logging.getLogger(__name__)


def load_pairs(
    *,
    train: FilePath | Sequence[FilePath] | Mapping[str, Any] | None = None,
    weights: Mapping[str, Any] | None = None,
    temperature: AtLeastOne | None = None,
    val: FilePath | None = None,
    test: str | Mapping[str, str] | None = None,
    val_references: Sequence[str] | None = None,
    test_references: Sequence[str] | Mapping[str, Any] | None = None,
    languages: Sequence[str] | None = None,
    path: FilePath | Sequence[FilePath] | None = None,
    alignments_path: str | Mapping[str, Any] | None = None,
    header: bool = False,
    source_column: Count = 0,
    target_column: Count = 1,
    features_column: Count | Sequence[Count] | None = None,
    limit: Size | None = None,
    cache: FolderPath | None = None,
    val_fraction: Fraction = 0.1,
    test_fraction: Fraction = 0.1,
    seed: Count = 0,
) -> Corpus:
    """Load sentence pairs, and split off at random the validation and test pairs that have no file.

    Args:
        train: training pairs: a tab-separated file (quotation marks are text), JSON lines, or the prefix of
            two aligned files; or a pattern such as corpus/*.tsv.gz, or several of these. See `Layout.read`.
            Or several corpora by name, {news: FILE, talks: FILE}, with files for `val` and `test`.
        weights: relative numbers of pairs that are drawn from the corpora of `train` per epoch,
            {news: 3, talks: 1}; an epoch has as many pairs as the corpora together. None for their sizes.
        temperature: draw from a corpus of n pairs in proportion to n^(1/temperature), as in multilingual
            translation (Arivazhagan et al., 2019, arXiv 1907.05019); None for 1.
        val: validation pairs, likewise, used as they are; None to split them off.
        test: test pairs, likewise, or several test sets by name; None to split them off. A table without
            targets is translated, and not scored.
        val_references: files with further references of `val`, [a.txt, b.txt]: line i of each belongs to line
            i of `val`, and may be empty. An input has several references also if it is repeated in a file,
            or if its target in JSON lines is a list.
        test_references: files with further references of `test`, likewise. Named test sets have theirs by
            name.
        languages: [de, en]: `train=prefix` reads prefix.de and prefix.en, or these keys of JSON lines; None
            for a table.
        path: file that is split into training, validation and test pairs, of the kinds of `train`.
        alignments_path: gold alignments of the lines of the training file, or of the file that is split; see
            `Layout.read`. Or such a file for several of "train", "val" and "test"; named test sets have
            theirs by name. The tokenizer must produce the aligner's tokens: `whitespace`, or `words` if it
            drops no token.
        header: the first row of a table is a header.
        source_column: column of the source in a table, from 0.
        target_column: column of the target in a table, from 0.
        features_column: column of features of the source, such as `V;IND;PST`, or several columns such as [1,
            2]; they become symbols at its end. None for none.
        limit: number of pairs to read for training, or to split; None for all.
        cache: folder of the files that more than 100,000 pairs are mapped from; None to keep all pairs in
            memory.
        val_fraction: share of the pairs in a validation split that is split off.
        test_fraction: share of the pairs in a test split that is split off.
        seed: seed of the split.
    """
    root = None if cache is None else Path(cache).expanduser()
    layout = Layout(
        languages=languages,
        header=header,
        source_column=source_column,
        target_column=target_column,
        features_column=features_column,
    )
    location = path if train is None else train
    if location is None or (path is not None and train is not None):
        raise UserError(
            "data: no text is given, or twice. Set data.path=FILE to a file that is split at random, or "
            "data.train=FILE, data.val=FILE and data.test=FILE"
        )
    corpora = {}
    if isinstance(train, Mapping):
        corpora = {str(name): layout.expand(each, f"data.train.{name}") for name, each in train.items()}
        location = [file for files in corpora.values() for file in files]
    alignments = alignment_files(alignments_path, splits={"train": location, "val": val, "test": test})
    read = layout.read(
        location,
        setting="data.path" if train is None else "data.train",
        alignments=alignments.get("train"),
        limit=limit,
        cache=root,
    )
    val_pairs, test_sets, files = read_evaluation_sets(
        layout,
        val=val,
        test=test,
        val_references=val_references,
        test_references=test_references,
        alignments=alignments,
        cache=root,
    )
    corpus = split_off(
        read.pairs,
        val_pairs,
        test_sets,
        files=(*read.files, *files),
        val_fraction=val_fraction,
        test_fraction=test_fraction,
        seed=seed,
    )
    return replace(corpus, draws=_draws(corpora, read, corpus.train, weights, temperature))


def _draws(
    corpora: Mapping[str, Sequence[str]],
    read: PairFile,
    train: Sequence[Pair],
    weights: Mapping[str, Any] | None,
    temperature: float | None,
) -> tuple[tuple[int, int], ...]:
    """Return `Corpus.draws` of the files of several corpora, and log them."""
    if weights is None and temperature is None:
        return ()
    if (weights is not None and temperature is not None) or len(corpora) < 2:
        raise UserError(
            "data.weights and data.temperature need several corpora in data.train={NAME: FILE, …}, and "
            "exclude each other"
        )
    if len(train) < len(read.pairs) or len({*read.names}) < len(read.names):
        raise UserError(
            "data.weights and data.temperature: give each file once, give data.val, and data.test or "
            "data.test_fraction=0"
        )
    counts, names = count_by_file(read.pairs), iter(read.names)
    sizes = [sum(counts.get(next(names), 0) for _ in files) for files in corpora.values()]
    given = [size ** (1 / (temperature or 1)) for size in sizes]
    if weights is not None:
        weights = {str(name): weight for name, weight in weights.items()}
        given = [weights.get(name) for name in corpora]
        is_valid = all(type(weight) in (int, float) and 0 < weight < math.inf for weight in given)
        if not is_valid or len(weights) > len(corpora):
            raise UserError(
                f"data.weights={dict(weights)}: give a number above 0 for each of {', '.join(corpora)}"
            )
    if 0 in sizes:
        raise UserError(f"data.limit leaves no pairs of {[*corpora][sizes.index(0)]}: increase it")
    ends = np.cumsum([0, *given]) / sum(given) * sum(sizes)
    draws = tuple(zip(sizes, np.diff(np.rint(ends).astype(int)).tolist(), strict=True))
    for name, (size, count) in zip(corpora, draws, strict=True):
        log.info(
            "data.train.%s: %d pairs, of which an epoch draws %d (%.2f per pair)",
            name,
            size,
            count,
            count / size,
        )
    return draws


def read_evaluation_sets(
    layout: Layout,
    *,
    val: Any,
    test: Any,
    alignments: Mapping[str, Any],
    val_references: Any = None,
    test_references: Any = None,
    cache: Path | None = None,
) -> tuple[Sequence[Pair] | None, TestSets | None, tuple[Path, ...]]:
    """Return the validation pairs and those of the test sets, None where no file is given, and the files."""
    files: list[Path] = []

    def read(setting: str, location: Any, links: Any, references: Any) -> Sequence[Pair]:
        found = layout.read(
            location,
            setting=setting,
            alignments=links,
            references=references,
            may_be_covered=setting != "data.val",
            cache=cache,
        )
        files.extend(found.files)
        return found.pairs

    for name, location, given in (("val", val, val_references), ("test", test, test_references)):
        if given is not None and location is None:
            raise UserError(f"data.{name}_references={given}: give data.{name}, whose lines they belong to")
    val_pairs = None if val is None else read("data.val", val, alignments.get("val"), val_references)
    test_sets: TestSets | None = None
    if isinstance(test, Mapping):
        if not test or len({*map(str, test)}) < len(test):
            raise UserError(f"data.test={test}: give a file, or several as {{NAME: FILE, …}}, each name once")
        links = _by_test_set("data.alignments_path.test", alignments.get("test"), test)
        further = _by_test_set("data.test_references", test_references, test)
        test_sets = {
            str(name): read(f"data.test.{name}", path, links.get(name), further.get(name))
            for name, path in test.items()
        }
    elif test is not None:
        test_sets = read("data.test", test, alignments.get("test"), test_references)
    return val_pairs, test_sets, tuple(files)


def _by_test_set(setting: str, files: Any, test: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the files of each test set; raise `UserError` if they are not given by the names of `test`."""
    if files is not None and (not isinstance(files, Mapping) or not files.keys() <= test.keys()):
        raise UserError(
            f"{setting}={files}: give the files by the names of the test sets, such as "
            f"{{{next(iter(test))}: FILE}}"
        )
    return files or {}


def alignment_files(alignments_path: Any, *, splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files of `data.alignments_path` by split. A single file is that of the first split.

    Args:
        splits: the file of each split that can have alignments; None for a split without one.
    """
    if not isinstance(alignments_path, Mapping):
        return {} if alignments_path is None else {next(iter(splits)): alignments_path}
    for name, file in alignments_path.items():
        if not isinstance(file, str | Mapping | None) or (name != "test" and isinstance(file, Mapping)):
            raise UserError(f"data.alignments_path.{name}={file} must be the path of a file")
        if splits.get(name) is None:
            raise UserError(
                f"data.alignments_path.{name}: there is no data.{name}. Give alignments of the files of "
                f"{', '.join(name for name, location in splits.items() if location is not None)}"
            )
    return dict(alignments_path)
