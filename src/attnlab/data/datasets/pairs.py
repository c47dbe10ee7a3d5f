"""Sentence pairs with files for training, validation and test, or split at random."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.pair_files import Layout
from attnlab.data.splitting import TestSets, split_off
from attnlab.errors import UserError
from attnlab.settings import Count, FilePath, FolderPath, Fraction, Size


def load_pairs(
    *,
    train: FilePath | Sequence[FilePath] | None = None,
    val: FilePath | None = None,
    test: str | Mapping[str, str] | None = None,
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
            two aligned files; or a list of these. See `Layout.read`.
        val: validation pairs, likewise, used as they are; None to split them off.
        test: test pairs, likewise, or several test sets by name; None to split them off. A table without
            targets is translated, and not scored.
        languages: [de, en]: `train=prefix` reads prefix.de and prefix.en, or these keys of JSON lines; None
            for a table.
        path: file that is split into training, validation and test pairs, of the kinds of `train`.
        alignments_path: gold alignments of the lines of the training file, or of the file that is split; see
            `Layout.read`. Or such a file for several of "train", "val" and "test". The tokenizer must produce
            the aligner's tokens: `whitespace`, or `words` if it drops no token.
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
    alignments = alignment_files(alignments_path, splits={"train": location, "val": val, "test": test})
    read = layout.read(
        location,
        setting="data.path" if train is None else "data.train",
        alignments=alignments.get("train"),
        limit=limit,
        cache=root,
    )
    val_pairs, test_sets, files = read_evaluation_sets(
        layout, val=val, test=test, alignments=alignments, cache=root
    )
    return split_off(
        read.pairs,
        val_pairs,
        test_sets,
        files=(*read.files, *files),
        val_fraction=val_fraction,
        test_fraction=test_fraction,
        seed=seed,
    )


def read_evaluation_sets(
    layout: Layout,
    *,
    val: Any,
    test: Any,
    alignments: Mapping[str, Any],
    cache: Path | None = None,
) -> tuple[Sequence[Pair] | None, TestSets | None, tuple[Path, ...]]:
    """Return the validation pairs and those of the test sets, None where no file is given, and the files."""
    files: list[Path] = []

    def read(setting: str, location: Any, links: Any = None) -> Sequence[Pair]:
        found = layout.read(
            location, setting=setting, alignments=links, may_be_covered=setting != "data.val", cache=cache
        )
        files.extend(found.files)
        return found.pairs

    val_pairs = None if val is None else read("data.val", val, alignments.get("val"))
    test_sets: TestSets | None = None
    if isinstance(test, Mapping):
        if not test:
            raise UserError("data.test={}: give a file, or several as {NAME: FILE, …}")
        test_sets = {str(name): read(f"data.test.{name}", path) for name, path in test.items()}
    elif test is not None:
        test_sets = read("data.test", test, alignments.get("test"))
    return val_pairs, test_sets, tuple(files)


def alignment_files(alignments_path: Any, *, splits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files of `data.alignments_path` by split. A single file is that of the first split.

    Args:
        splits: the file of each split that can have alignments; None for a split without one.
    """
    if not isinstance(alignments_path, Mapping):
        return {} if alignments_path is None else {next(iter(splits)): alignments_path}
    for name, file in alignments_path.items():
        if not isinstance(file, str | None) or (name == "test" and isinstance(splits.get(name), Mapping)):
            raise UserError(
                f"data.alignments_path.{name}={file} must be the path of a file, and data.{name} one file"
            )
        if splits.get(name) is None:
            raise UserError(
                f"data.alignments_path.{name}: there is no data.{name}. Give alignments of the files of "
                f"{', '.join(name for name, location in splits.items() if location is not None)}"
            )
    return dict(alignments_path)
