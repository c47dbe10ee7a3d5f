import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from attnlab.data import digests
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.hugging_face import load_hugging_face
from attnlab.data.tokenization import train
from attnlab.data.tokenization.vocabularies import train_vocabularies
from attnlab.errors import UserError
from attnlab.files.digests import changed_files
from multi30k import write_corpus

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the corpus as saved datasets, and as JSON lines."""
    folder = tmp_path_factory.mktemp("huggingface")
    corpus = write_corpus(folder)

    def save(name: str, splits: dict[str, list[dict]]) -> None:
        files = {split: str(folder / f"{name}-{split}.jsonl") for split in splits}
        for split, rows in splits.items():
            Path(files[split]).write_text("".join(json.dumps(row) + "\n" for row in rows))
        cache = str(folder / "cache")
        datasets.load_dataset("json", data_files=files, cache_dir=cache).save_to_disk(str(folder / name))

    rows = {
        split: [dict(zip(("de", "en"), pair, strict=True)) for pair in pairs]
        for split, pairs in corpus.items()
    }
    rows["validation"] = rows.pop("val")
    records = rows["train"]
    save("flat", rows)
    save("nested", {"train": [{"translation": record} for record in records]})
    (folder / "files").mkdir()
    for split in ("train", "validation", "test"):
        chosen = records[:100] if split == "train" else records[100:120]
        content = "".join(json.dumps(record) + "\n" for record in chosen)
        (folder / "files" / f"{split}.jsonl").write_text(content)
    return folder


def load_from(folder: Path, name: str, **settings) -> Corpus:
    defaults = {"dataset": str(folder / name), "columns": ["de", "en"], "cache": str(folder)}
    return load_hugging_face(**{**defaults, **settings})


def test_saved_datasets_are_read_with_several_test_splits(folder: Path):
    tests = {"flickr2016": "test_2016_flickr", "mscoco": "test_2017_mscoco"}
    corpus = load_from(folder, "flat", test_split=tests)
    sizes = {name: len(pairs) for name, pairs in corpus.splits.items()}
    assert sizes == {"train": 160, "val": 20, "test/flickr2016": 12, "test/mscoco": 8}
    assert sorted(file.parent.name for file in corpus.files) == sorted(
        ["train", "validation", "test_2016_flickr", "test_2017_mscoco"]
    )
    lines = [(folder / f"train.{language}").read_text().splitlines()[0] for language in ("de", "en")]
    assert corpus.train[0] == Pair(*lines)


def test_nested_columns_and_missing_splits(folder: Path):
    names = ["translation.de", "translation.en"]
    corpus = load_from(folder, "nested", columns=names, val_split=None, test_split=None, limit=100)
    assert [len(pairs) for pairs in corpus.splits.values()] == [80, 10, 10]


def test_folders_of_data_files_are_read(folder: Path):
    corpus = load_from(folder, "files")
    assert [file.name for file in corpus.files] == ["test.jsonl", "train.jsonl", "validation.jsonl"]
    assert (len(corpus.train), len(corpus.val)) == (100, 20)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("flat", {"dataset": None}, "data.dataset is not given"),
        *(("flat", {"columns": columns}, "must be the columns of") for columns in (None, "de", ["de", "de"])),
        ("flat", {"columns": ["", "en"], "test_split": None}, "has no column ''. It has de, en"),
        ("flat", {"columns": ["de", "fr"], "test_split": None}, "has no column 'fr'. It has de, en"),
        ("flat", {}, "data.test_split=test: .* has no such split. It has train, test_2016"),
        ("flat", {"test_split": {"a": "x"}}, "data.test_split.a=x: .* has no such split"),
        ("flat", {"val_split": "dev", "test_split": None}, "data.val_split=dev: .* has no such split"),
        ("flat", {"train_split": "tr", "test_split": None}, "data.train_split=tr: .* has no such split"),
        ("missing", {}, "missing cannot be loaded"),
    ],
)
def test_invalid_settings_and_rows_are_rejected(folder: Path, name: str, settings: dict, message: str):
    with pytest.raises(UserError, match=message) as caught:
        load_from(folder, name, **settings)
    assert "\n" not in str(caught.value)


def write(folder: Path, rows: list[dict]) -> None:
    table = datasets.table.InMemoryTable.from_pylist(rows)
    datasets.Dataset(table, fingerprint="rows").save_to_disk(str(folder))


GOOD = {"de": "ein Haus", "en": "a house"}


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([GOOD, {"de": None, "en": "b"}], "de,en", "row 1: de is empty"),
        ([GOOD, GOOD, {"de": "a", "en": "\t\n"}], "de,en", "row 2: en is empty"),
        ([GOOD, {"en": "b"}], "de,en", "row 1: de is empty"),
        ([{"de": 1, "en": "b"}], "de,en", "row 0: de is a int"),
        ([{"de": ["a"], "en": "b"}], "de,en", "row 0: de is a list"),
        ([{"de": {"text": "a"}, "en": "b"}], "de,en", "no column 'de'. It has de.text, en"),
        ([{"t": GOOD}, {"t": None}], "t.de,t.en", "row 1: t.de is empty"),
        ([{"t": {"de": "a", "en": 1}}], "t.de,t.en", "row 0: t.en is a int"),
        ([{"t": [GOOD]}], "t.de,t.en", "no column 't.de'"),
        ([GOOD], "de,en", "training and validation data is empty: 1 pairs"),
    ],
)
def test_hostile_rows_are_rejected(tmp_path: Path, rows: list[dict], columns: str, message: str):
    write(tmp_path / "rows", rows)
    with pytest.raises(UserError, match=message) as caught:
        load_from(tmp_path, "rows", columns=columns.split(","), val_split=None, test_split=None)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "state.json").write_text(""),
        lambda folder: (folder / "dataset_info.json").unlink(),
        lambda folder: next(folder.glob("*.arrow")).write_bytes(b"text"),
    ],
)
def test_damaged_folders_are_rejected(tmp_path: Path, damage: Callable[[Path], object]):
    write(tmp_path / "rows", [GOOD])
    damage(tmp_path / "rows")
    with pytest.raises(UserError, match=r"data\.dataset=.*rows cannot be loaded: ") as caught:
        load_from(tmp_path, "rows", val_split=None, test_split=None)
    assert "\n" not in str(caught.value)


def test_changed_rows_are_noticed(tmp_path: Path):
    names = (f"{word} {number}" for word in ("eins", "zwei") for number in range(10))
    rows = [{"de": name, "en": name.upper()} for name in names]
    settings = {"val_split": None, "test_split": None}
    write(tmp_path / "rows", rows)
    corpus = load_from(tmp_path, "rows", **settings)
    vocabularies = train_vocabularies(corpus.train, source=partial(train.whitespace, max_size=None))
    recorded = digests.describe(corpus, vocabularies)
    (tmp_path / "rows" / ".git").mkdir()
    for name in ("cache-of-the-library.arrow", ".git/object.arrow"):
        (tmp_path / "rows" / name).touch()
    same = digests.describe(load_from(tmp_path, "rows", **settings), vocabularies)
    assert same == recorded
    assert changed_files(recorded) == []
    shutil.rmtree(tmp_path / "rows")
    write(tmp_path / "rows", [{"de": "drei 1", "en": "x"}, *rows[1:]])
    (file,) = changed_files(recorded)
    assert file.endswith(".arrow")
    current = digests.describe(load_from(tmp_path, "rows", **settings), vocabularies)
    with pytest.raises(UserError, match=r"\.arrow changed since this run was started.*or force"):
        digests.check_unchanged(recorded, current, recorded["splits"], fix="force")


def test_without_a_cache_all_pairs_are_in_memory(folder: Path) -> None:
    corpus = load_from(folder, "flat", cache=None, test_split=None, test_fraction=0.1)
    assert isinstance(corpus.train, list)
    assert len(corpus.train) == 144
