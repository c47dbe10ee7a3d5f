import json
from pathlib import Path

import pytest

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.hugging_face import load
from attnlab.errors import UserError
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
    bad = zip(("a", " ", None), ("b", "c", "d"), (1, 2, 3), strict=True)
    save("bad", {"train": [dict(zip(("de", "en", "number"), row, strict=True)) for row in bad]})
    (folder / "files").mkdir()
    for split in ("train", "validation", "test"):
        chosen = records[:100] if split == "train" else records[100:120]
        content = "".join(json.dumps(record) + "\n" for record in chosen)
        (folder / "files" / f"{split}.jsonl").write_text(content)
    return folder


def load_from(folder: Path, name: str, **settings) -> Corpus:
    return load(**{"dataset": str(folder / name), "columns": ["de", "en"], "cache": str(folder), **settings})


def test_saved_datasets_are_read_with_several_test_splits(folder: Path):
    tests = {"flickr2016": "test_2016_flickr", "mscoco": "test_2017_mscoco"}
    corpus = load_from(folder, "flat", test_split=tests)
    sizes = {name: len(pairs) for name, pairs in corpus.splits.items()}
    assert sizes == {"train": 160, "val": 20, "test/flickr2016": 12, "test/mscoco": 8}
    lines = [(folder / f"train.{language}").read_text().splitlines()[0] for language in ("de", "en")]
    assert corpus.train[0] == Pair(*lines)


def test_nested_columns_and_missing_splits(folder: Path):
    names = ["translation.de", "translation.en"]
    corpus = load_from(folder, "nested", columns=names, val_split=None, test_split=None, limit=100)
    assert [len(pairs) for pairs in corpus.splits.values()] == [80, 10, 10]


def test_folders_of_data_files_are_read(folder: Path):
    corpus = load_from(folder, "files", max_tokens=8)
    assert corpus.train
    assert all(len(pair.source.split()) <= 8 for pair in corpus.train)
    assert len(corpus.val) == 20


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("flat", {"dataset": None}, "data.dataset is not given"),
        ("flat", {"columns": None}, "must be the columns of source and target"),
        ("flat", {"columns": ["de"]}, "must be the columns of source and target"),
        ("flat", {"columns": ["de", "de"]}, "must be the columns of source and target"),
        ("flat", {"columns": "de"}, "must be the columns of source and target"),
        ("flat", {"columns": ["de", "fr"], "test_split": None}, "has no column 'fr'. It has de, en"),
        ("flat", {}, "data.test_split=test: .* has no such split. It has train, test_2016"),
        ("flat", {"test_split": {"a": "x"}}, "data.test_split.a=x: .* has no such split"),
        ("flat", {"val_split": "dev", "test_split": None}, "data.val_split=dev: .* has no such split"),
        ("flat", {"train_split": "tr", "test_split": None}, "data.train_split=tr: .* has no such split"),
        ("bad", {"val_split": None, "test_split": None}, "split train, row 1: de is empty"),
        (
            "bad",
            {"columns": ["number", "en"], "val_split": None, "test_split": None},
            "split train, row 0: number is a int",
        ),
        (
            "bad",
            {"columns": ["de.text", "en"], "val_split": None, "test_split": None},
            "split train, row 0: de.text is empty",
        ),
        ("missing", {}, "missing cannot be loaded"),
    ],
)
def test_invalid_settings_and_rows_are_rejected(folder: Path, name: str, settings: dict, message: str):
    with pytest.raises(UserError, match=message) as caught:
        load_from(folder, name, **settings)
    assert "\n" not in str(caught.value)
