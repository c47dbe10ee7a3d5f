"""Training, evaluation, prediction and reports on a corpus with its own splits and two test sets."""

import csv
import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run
from commands import attnlab
from multi30k import SIZES, SPLITS, write_corpus

TINY = (
    *("embedding.size=8", "encoder.size=8", "decoder.size=16", "attention_size=8", "batching.batch_size=32"),
    *("search.max_length=6", "trainer.accelerator=cpu", "trainer.max_epochs=1", "logger=none"),
    *("name=multi30k", "callbacks.attention_figures.count=0"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run that was trained in the folder of the corpus."""
    folder = tmp_path_factory.mktemp("multi30k")
    write_corpus(folder)
    done = attnlab("train", *SPLITS, *TINY, folder=folder)
    assert "12 + 8 test pairs" in " ".join(done.stderr.split())
    (directory,) = (folder / "outputs" / "multi30k").iterdir()
    return Run(directory)


def folder_of(run: Run) -> Path:
    """Return the folder of the corpus."""
    return run.directory.parents[2]


@pytest.mark.slow
def test_every_test_set_has_its_own_scores_and_predictions(run: Run):
    scores = run.read_result()["metrics"]
    for name in ("bleu", "exact_match", "loss", "attention/entropy"):
        assert {f"test/flickr2016/{name}", f"test/mscoco/{name}"} <= scores.keys()
    assert not {"test/bleu", "test/loss"} & scores.keys()
    for name, split in (("flickr2016", "test_2016_flickr"), ("mscoco", "test_2017_mscoco")):
        predictions = read_predictions(run.predictions / f"test-{name}.jsonl")
        references = (folder_of(run) / f"{split}.en").read_text().splitlines()
        assert [prediction.references for prediction in predictions] == [(text,) for text in references]
    first = read_predictions(run.attention)
    assert len(first) == SIZES["test_2016_flickr"]


@pytest.mark.slow
def test_report_compares_on_every_test_set(run: Run):
    folder = folder_of(run)
    attnlab("report", "outputs/multi30k", "-o", "page/report.html", folder=folder)
    (table,) = (folder / "page").glob("*/results.csv")
    with table.open() as file:
        (row,) = csv.DictReader(file)
    assert {"test/flickr2016/bleu", "test/mscoco/bleu"} <= row.keys()
    assert "BLEU (flickr2016)" in (folder / "page" / "report.html").read_text()


def test_evaluate_reads_given_test_sets_and_not_the_training_data(run: Run):
    folder = folder_of(run)
    leaked = (folder / "train.de").read_text().splitlines()[:3]
    (folder / "leak.tsv").write_text("\n".join(f"{line}\tA dog." for line in [*leaked, "Ein Baum."]))
    (folder / "train.de").rename(folder / "elsewhere.de")
    try:
        test_sets = "data.test={new:leak.tsv,old:test_2017_mscoco}"
        done = attnlab("evaluate", str(run.directory), test_sets, folder=folder)
    finally:
        (folder / "elsewhere.de").rename(folder / "train.de")
    results = [
        json.loads(path.read_text()) for path in sorted((run.directory / "evaluations").glob("*/result.json"))
    ]
    assert [(result["split"], result["sentences"]) for result in results] == [
        ("test/new", 4),
        ("test/old", 8),
    ]
    assert [result["seen_in_training"] for result in results] == [3, 0]
    assert "3 of these sources were in the training split" in done.stdout
    assert done.stdout.count("were in the training split") == 1
    original = run.read_result()["metrics"]
    assert results[1]["metrics"]["test/old/bleu"] == original["test/mscoco/bleu"]
    assert results[1]["metrics"]["test/old/loss"] == pytest.approx(original["test/mscoco/loss"])


def test_digests_of_the_data_are_recorded(run: Run):
    data = run.read_result()["data"]
    content = (folder_of(run) / "train.de").read_bytes()
    assert data["files"]["train.de"] == hashlib.sha256(content).hexdigest()
    assert len(data["files"]) == 8
    assert {name: split["pairs"] for name, split in data["splits"].items()} == {
        "train": 160, "val": 20, "test/flickr2016": 12, "test/mscoco": 8
    }  # fmt: skip
    assert data["vocabularies"]["source"]["sha256"] != data["vocabularies"]["target"]["sha256"]
    assert torch.load(run.best, weights_only=True)["attnlab"]["data"] == data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("train.de", "training data is different. Restore the original data, or start again with force=true"),
        ("test_2017_mscoco.en", "test/mscoco data is different. Restore the original data, or start again"),
    ],
)
def test_interrupted_run_is_not_resumed_on_replaced_data(run: Run, tmp_path: Path, name: str, way: str):
    folder = tmp_path / "corpus"
    shutil.copytree(folder_of(run), folder)
    copy = Run(folder / run.directory.relative_to(folder_of(run)))
    copy.write_result("interrupted")
    checkpoint = copy.last.read_bytes()
    lines = (folder / name).read_text().splitlines()
    (folder / name).write_text("\n".join([lines[1], lines[0], *lines[2:]]))
    done = attnlab("train", *SPLITS, *TINY, folder=folder, code=1)
    assert f"{name} changed since this run was started: the {way}" in " ".join(done.stderr.split())
    assert copy.last.read_bytes() == checkpoint
    if name.startswith("test"):
        done = attnlab("evaluate", str(copy.directory), folder=folder, code=1)
        assert f"{name} changed since this run was started: the test/mscoco data" in done.stderr
        assert "or evaluate on the changed data with data.test=FILE" in done.stderr
        attnlab("evaluate", str(copy.directory), "data.test=test_2017_mscoco", folder=folder)


@pytest.mark.slow
def test_a_source_that_looks_like_features_is_one_column(tmp_path: Path) -> None:
    rows = "".join(f"the letter k{n} ⟨k{n}⟩\tsound k{n}\n" for n in range(12))
    (tmp_path / "letters.tsv").write_text(rows, encoding="utf-8")
    attnlab("train", "data=pairs", "data.path=letters.tsv", *TINY, "name=letters", folder=tmp_path)
    (directory,) = (tmp_path / "outputs" / "letters").iterdir()
    for line in (directory / "predictions" / "val.tsv").read_text(encoding="utf-8").splitlines():
        assert line.count("\t") == 1
    printed = attnlab(
        "predict", str(directory), "--nbest", "1", folder=tmp_path, stdin="the letter k1 ⟨k1⟩\n"
    ).stdout.splitlines()
    assert printed[1].split("\t")[2] == "the letter k1 ⟨k1⟩"
