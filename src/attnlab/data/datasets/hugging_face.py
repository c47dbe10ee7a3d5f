"""Datasets of the Hugging Face Hub or on disk, read by the `datasets` library.

They need `pip install 'attnlab[huggingface]'`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.data.corpus import Corpus, Origin, Pair
from attnlab.data.mapped import gather
from attnlab.data.splitting import TestSets, split_off
from attnlab.errors import UserError, needs
from attnlab.files.cache import Key
from attnlab.files.digests import current_digest
from attnlab.settings import Count, FolderPath, Fraction, Size


def load_hugging_face(
    *,
    dataset: str | None = None,
    columns: Sequence[str] | None = None,
    config: str | None = None,
    revision: str | None = None,
    train_split: str = "train",
    val_split: str | None = "validation",
    test_split: str | Mapping[str, str] | None = "test",
    cache: FolderPath | None,
    limit: Size | None = None,
    val_fraction: Fraction = 0.1,
    test_fraction: Fraction = 0.1,
    seed: Count = 0,
) -> Corpus:
    """Load a dataset, and split off at random the validation and test pairs that have no split.

    Args:
        dataset: name on the Hub, such as "bentrevett/multi30k"; or a folder of `Dataset.save_to_disk`, or of
            data files that `datasets.load_dataset` reads.
        columns: columns of the source and the target text; a dot selects a field: "translation.de".
        config: configuration of the dataset; None for its only one.
        revision: version of the dataset on the Hub; None for the newest.
        train_split: name of the training split.
        val_split: name of the validation split; None to split it off.
        test_split: name of the test split, or of several by name; None to split it off.
        cache: folder of downloaded files, and of those that more than 100,000 pairs are mapped from; None for
            the folder of the `datasets` library, and all pairs in memory.
        limit: number of training pairs to use; None for all.
        val_fraction: share of the pairs in a validation split that is split off.
        test_fraction: share of the pairs in a test split that is split off.
        seed: seed of the split.
    """
    if not isinstance(dataset, str) or not dataset:
        raise UserError("data.dataset is not given: set it to a name on the Hugging Face Hub or a folder")
    names = [*columns] if isinstance(columns, Sequence) and not isinstance(columns, str) else []
    if len(set(names)) != 2 or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise UserError(f"data.columns={columns} must be the columns of source and target, such as [de,en]")
    root, files = None if cache is None else Path(cache).expanduser(), _files(Path(dataset).expanduser())
    splits = _load(dataset, config, revision, None if root is None else str(root / "huggingface"))

    def pairs(name: str, setting: str) -> Sequence[Pair]:
        if name not in splits:
            raise UserError(
                f"{setting}={name}: {dataset} has no such split. It has {', '.join(map(str, splits))}"
            )
        location, rows = f"{dataset}, split {name}", splits[name]

        def key() -> Key:
            digests = [(str(file), current_digest(str(file))) for file in files]
            return {"fingerprint": rows._fingerprint, "files": digests, "columns": names, "split": location}

        return gather(
            lambda: _pairs(rows, names, location), cache=root, key=key, noun=f"the pairs of {location}"
        )

    test: TestSets | None = None
    if isinstance(test_split, Mapping):
        test = {str(key): pairs(name, f"data.test_split.{key}") for key, name in test_split.items()}
    elif test_split is not None:
        test = pairs(test_split, "data.test_split")
    val = None if val_split is None else pairs(val_split, "data.val_split")
    return split_off(
        pairs(train_split, "data.train_split")[:limit],
        val,
        test,
        files=files,
        val_fraction=val_fraction,
        test_fraction=test_fraction,
        seed=seed,
    )


def _load(dataset: str, config: str | None, revision: str | None, cache: str | None) -> Mapping[str, Any]:
    with needs("huggingface", "data=huggingface needs the datasets library"):
        import datasets
    datasets.disable_progress_bars()
    folder = Path(dataset).expanduser()
    try:
        loaded = (
            datasets.load_from_disk(str(folder))
            if _is_saved(folder)
            else datasets.load_dataset(dataset, config, revision=revision, cache_dir=cache)
        )
    except Exception as error:  # the library raises errors of many packages
        reason = " ".join(str(error).split())
        raise UserError(f"data.dataset={dataset} cannot be loaded: {reason}") from error
    return loaded if isinstance(loaded, Mapping) else {"train": loaded}


def _is_saved(folder: Path) -> bool:
    """Return whether a folder was written by `save_to_disk`."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _files(folder: Path) -> tuple[Path, ...]:
    """Return the data files in a folder; none for a dataset of the Hub, whose folder does not exist."""
    files = folder.rglob("*.arrow" if _is_saved(folder) else "*")
    hidden = re.compile(r"(^|/)(\.|cache-)")  # `datasets` writes its cache next to saved datasets
    visible = (file for file in files if not hidden.search(file.relative_to(folder).as_posix()))
    return tuple(sorted(filter(Path.is_file, visible)))


def _pairs(rows: Any, columns: Sequence[str], location: str) -> Iterator[Pair]:
    rows = rows.flatten()  # fields become columns
    for column in columns:
        if column not in rows.column_names:
            raise UserError(
                f"data.columns: {location} has no column {column!r}. It has {', '.join(rows.column_names)}"
            )
    for number, row in enumerate(rows.select_columns([*columns])):
        for column, text in row.items():
            if not isinstance(text, str) or not text.strip():
                kind = "empty" if text is None or isinstance(text, str) else f"a {type(text).__name__}"
                raise UserError(f"{location}, row {number}: {column} is {kind}. Correct or remove the row")
        source, target = (row[column] for column in columns)
        yield Pair(source, target, origin=Origin(location, number, "row"))
