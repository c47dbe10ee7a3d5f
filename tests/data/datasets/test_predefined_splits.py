import gzip
import json
from pathlib import Path

import pytest

from attnlab.data.corpus import Pair
from attnlab.data.datasets.pairs import load_pairs as load
from attnlab.errors import UserError
from multi30k import write_corpus


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Pair]]:
    """Write the corpus into the current folder, and return the pairs of its splits."""
    monkeypatch.chdir(tmp_path)
    written = write_corpus(tmp_path, compressed=("val",))
    return {split: [Pair(*texts) for texts in pairs] for split, pairs in written.items()}


def test_aligned_files_are_read_by_their_prefix(corpus):
    tests = {"flickr2016": "test_2016_flickr", "mscoco": "test_2017_mscoco"}
    loaded = load(train="train", val="val", test=tests, languages=["de", "en"])
    assert loaded.splits == {
        "train": corpus["train"],
        "val": corpus["val"],
        "test/flickr2016": corpus["test_2016_flickr"],
        "test/mscoco": corpus["test_2017_mscoco"],
    }
    names = ["train.de", "train.en", "val.de.gz", "val.en.gz", "test_2016_flickr.de", "test_2016_flickr.en"]
    assert [str(file) for file in loaded.files[:6]] == names


def test_languages_give_the_direction(corpus):
    loaded = load(train="train", val="val", test="test_2016_flickr", languages=["en", "de"])
    assert loaded.train == [Pair(pair.target, pair.source) for pair in corpus["train"]]
    assert loaded.test_splits == ("test",)


@pytest.mark.parametrize("layout", ["table", "json", "translation", "gzip"])
def test_tables_and_json_lines_equal_aligned_files(corpus, layout: str):
    records = [(pair.source, pair.target) for pair in corpus["train"]]
    name = {"table": "train.tsv", "gzip": "train.tsv.gz"}.get(layout, "train.jsonl")
    if layout in ("table", "gzip"):
        content = "".join("\t".join(texts) + "\n" for texts in records).encode()
    else:
        objects = [dict(zip(("de", "en"), texts, strict=True)) for texts in records]
        wrapped = [{"translation": item} if layout == "translation" else item for item in objects]
        content = "".join(json.dumps(item) + "\n" for item in wrapped).encode()
    Path(name).write_bytes(gzip.compress(content) if layout == "gzip" else content)
    languages = None if layout in ("table", "gzip") else ["de", "en"]
    assert load(train=name, val=name, test=name, languages=languages).train == corpus["train"]


def test_json_lines_have_the_keys_source_and_target_by_default(corpus):
    lines = [json.dumps({"id": 1, "source": f"s{i}", "target": f"t{i}"}) for i in range(20)]
    Path("pairs.jsonl").write_text("\n".join(lines))
    assert Pair("s3", "t3") in load(path="pairs.jsonl").train


def test_missing_splits_are_split_off(corpus):
    whole = len(corpus["train"])
    languages = {"languages": ["de", "en"]}
    both = load(train="train", **languages)
    assert (len(both.val), len(both.test)) == (16, 16)
    assert both.splits == load(path="train", **languages).splits  # data.path is the same
    only_test = load(train="train", val="val", test_fraction=0.25, **languages)
    assert (only_test.val, len(only_test.test), len(only_test.train)) == (corpus["val"], 40, whole - 40)
    only_val = load(train="train", test="test_2016_flickr", **languages)
    assert (len(only_val.val), only_val.test) == (16, corpus["test_2016_flickr"])
    none = load(train="train", val="val", test_fraction=0, **languages)
    assert (none.train, none.test_splits) == (corpus["train"], ())


def test_limit_applies_to_training_data_only(corpus):
    loaded = load(train="train", val="val", test="test_2016_flickr", languages=["de", "en"], limit=5)
    assert (loaded.train, loaded.val) == (corpus["train"][:5], corpus["val"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": "train"}, "data.train: train does not exist"),
        ({"train": "train", "languages": ["de", "fr"]}, "data.train: train.fr does not exist"),
        ({"train": "nowhere", "languages": ["de", "en"]}, "data.train: nowhere.de does not exist"),
        ({"train": "train", "val": "gone", "languages": ["de", "en"]}, "data.val: gone.de does not exist"),
        ({"train": "train", "languages": ["de"]}, "must be the source and the target language"),
        ({"train": "train", "languages": ["de", "de"]}, "must be the source and the target language"),
        ({"train": "train", "languages": "de"}, "must be the source and the target language"),
        ({"train": 5}, "data.train=5 must be the path of a file"),
        ({"train": ["a", "b"]}, "data.train: a does not exist"),
        ({"train": "train", "path": "train", "languages": ["de", "en"]}, "Set data.path=FILE to a file that"),
        ({"val": "val", "languages": ["de", "en"]}, "no text is given"),
        ({"train": "train", "val_fraction": 0, "languages": ["de", "en"]}, "validation split is empty"),
    ],
)
def test_invalid_settings_are_rejected(corpus, settings: dict, message: str):
    with pytest.raises(UserError, match=message):
        load(**settings)
