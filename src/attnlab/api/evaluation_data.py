"""Validation and test files that `attnlab evaluate` is given in place of the data of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from attnlab.config.compose import usage_errors
from attnlab.config.construct import construct
from attnlab.data import digests
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.pair_files import Layout
from attnlab.data.datasets.pairs import alignment_files, read_evaluation_sets
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.files.run_directory import Run
from attnlab.training.build import check_alignments

LAYOUT = ("languages", "header", "source_column", "target_column", "features_column")
"""Settings of `data=pairs` that describe files; they can be given with the files for every dataset."""

GIVEN = ("val", "test", "alignments_path", "val_references", "test_references")
"""Settings of `data=pairs` that name files of evaluation."""

PAIRS = "attnlab.data.datasets.pairs.load_pairs"

OTHER_DATA = ("train", "val", "test", "path", "dataset", "config", "revision")
"""Settings of `data` that name data. It need not be the data of the run."""

UNCHANGED_DATA = ("cache",)  # Settings of `data` that do not change the pairs


class GivenData(NamedTuple):
    """Files given on the command line."""

    files: dict[str, Any]  # the given settings of `GIVEN`
    layout: dict[str, Any]  # the given settings of `LAYOUT`


def separate(config: DictConfig, overrides: list[str]) -> tuple[GivenData, list[str]]:
    """Separate `data.val=…` and `data.test=…`, and the layout of these files, from the other overrides.

    A dataset with its own format, such as CoNaLa, reads the files itself: its overrides are not separated.
    """
    given = GivenData({}, {})
    others = []
    for text in overrides:
        group, _, key = text.partition("=")[0].partition(".")
        known = group == "data" and key in (*GIVEN, *LAYOUT)
        if not known or (config.data._target_ != PAIRS and key in config.data):
            others.append(text)
            continue
        with usage_errors():
            (override,) = OverridesParser.create().parse_overrides([text])
        (given.layout if key in LAYOUT else given.files)[key] = override.value()
    if not given.files.keys() & {"val", "test"}:
        return GivenData({}, {}), overrides
    return given, others


def find_data(config: DictConfig, run: Run) -> DictConfig:
    """Return the configuration with the relative paths of data that are not found in the current folder.

    They are replaced by absolute ones, if they exist in the folder of the training, or in the folder that
    contains the output of a moved run.
    """
    folders = [Path(str(run.read_result().get("folder", ""))), *run.directory.parents[2:3]]

    def find(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: find(each) for name, each in value.items()}
        if isinstance(value, list):
            return [find(each) for each in value]
        if not isinstance(value, str) or not value or Path(value).is_absolute() or _exists(Path(), value):
            return value
        return next((str(folder / value) for folder in folders if _exists(folder, value)), value)

    found = config.copy()
    data: Any = OmegaConf.to_container(config.data, resolve=True)
    for name in data.keys() & {*OTHER_DATA, "alignments_path", "val_references", "test_references"}:
        found.data[name] = find(data[name])
    return found


def _exists(folder: Path, path: str) -> bool:
    """Return whether a file, a file of a pattern, or one of aligned files with endings (`test.de`) exists."""
    return (folder / path).exists() or any(folder.glob(path)) or any(folder.glob(f"{path}.*"))


def _own_layout(config: DictConfig) -> dict[str, Any]:
    """Return the settings of `LAYOUT` that the run was trained with."""
    return {key: config.data[key] for key in LAYOUT if key in config.data}


def layout_of(config: DictConfig) -> Layout | None:
    """Return the columns of the tables that a run was trained on; None if its data was not in tables."""
    is_table = config.data._target_ == PAIRS and config.data.languages is None
    return Layout(**_own_layout(config)) if is_table else None


def check_unchanged(
    overrides: list[str],
    recorded: digests.Record,
    corpus: Corpus,
    vocabularies: Vocabularies,
    splits: tuple[str, ...],
) -> None:
    """Check that the data is that of the run, unless an override names other data.

    Other settings of `data`, such as `data.limit`, can change the splits: with these, the files are
    compared instead.
    """
    keys = [override.partition("=")[0].lstrip("+").split(".") for override in overrides]
    if ["data"] in keys:
        return
    settings = {key[1] for key in keys if key[0] == "data"} - {*UNCHANGED_DATA}
    if settings & {*OTHER_DATA}:
        return
    fix = "evaluate on the changed data with data.test=FILE or data.val=FILE"
    if settings:
        digests.check_files(recorded, fix=fix)
    else:
        digests.check_unchanged(recorded, digests.describe(corpus, vocabularies), splits, fix=fix)


def read(
    config: DictConfig, given: GivenData, vocabularies: Vocabularies, metrics: tuple[str, ...]
) -> Corpus:
    """Read the given files. The training data of the run is not read."""
    layout = Layout(**{**_own_layout(config), **given.layout})
    preparation = config.data.get("preparation")
    prepare = None if preparation is None else construct(preparation)

    def prepared(pairs: Sequence[Pair]) -> Sequence[Pair]:
        if prepare is None:
            return pairs
        return [replace(prepare(pair.source, pair.target), origin=pair.origin) for pair in pairs]

    splits: dict[str, Any] = {name: given.files[name] for name in ("test", "val") if name in given.files}
    alignments_path = given.files.get("alignments_path")
    check_alignments(alignments_path, vocabularies)
    val, test, files = read_evaluation_sets(
        layout,
        val=splits.get("val"),
        test=splits.get("test"),
        val_references=given.files.get("val_references"),
        test_references=given.files.get("test_references"),
        alignments=alignment_files(alignments_path, splits=splits),
    )
    return Corpus(
        val=prepared(val or []),
        test={name: prepared(pairs) for name, pairs in test.items()}
        if isinstance(test, Mapping)
        else prepared(test or []),
        metrics=metrics,
        files=files,
        evaluation_only=True,
    )
