"""CoNaLa with slots: train, evaluate on a test file and predict."""

import json
from pathlib import Path

import pytest

from attnlab.files.run_directory import Run
from commands import attnlab

pytestmark = pytest.mark.slow

VERBS = {"sort": "sorted({})", "count": "len({})", "add up": "sum({})", "reverse": "{}[::-1]"}


def example(verb: str, name: str, number: int) -> dict[str, object]:
    return {
        "intent": f"how to {verb} things",
        "rewritten_intent": f"{verb.capitalize()} list `{name}`.",
        "snippet": VERBS[verb].format(name),
        "question_id": number,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conala")
    rows = [example(verb, f"x{n}", 10 * n) for n in range(40) for verb in VERBS]
    (folder / "train.json").write_text(json.dumps(rows))
    tests = [example(verb, f"never_seen_{n}", n) for n in range(3) for verb in VERBS]
    (folder / "test.json").write_text(json.dumps(tests))
    return folder


def train(folder: Path, *overrides: str) -> Run:
    completed = attnlab(
        *("train", "data=conala", "data.preparation.slots=true", "data.path=train.json", "logger=none"),
        *("data.near_duplicates=null", "callbacks.attention_figures.count=0"),
        *("embedding.size=16", "encoder.size=16", "decoder.size=32", "batching.batch_size=8"),
        *("optimizer.lr=0.01", "trainer.max_epochs=60", "trainer.accelerator=cpu", "search.max_length=12"),
        *("checkpoint.monitor=val/conala_bleu", "checkpoint.mode=max", *overrides),
        folder=folder,
    )
    (line,) = [line for line in completed.stdout.splitlines() if line.startswith("run directory")]
    return Run(Path(line.removeprefix("run directory").strip()))


@pytest.fixture(scope="module")
def trained(folder: Path) -> Run:
    """A run with early stopping by BLEU."""
    return train(folder, "callbacks.early_stopping.patience=5")


@pytest.fixture(scope="module")
def averaged(folder: Path) -> Run:
    """A run with weight averaging."""
    return train(folder, "callbacks.early_stopping.patience=5", "callbacks.averaging.decay=0.99", "seed=1")


def test_early_stopping_by_bleu(trained: Run) -> None:
    result = trained.read_result()
    assert result["metrics"]["val/conala_bleu"] == pytest.approx(100)
    assert result["steps"] < 60 * 16
    assert {"val/conala_exact_match", "val/parses", "val/slot_accuracy"} <= set(result["metrics"])


def test_evaluate_on_a_test_file(trained: Run, folder: Path) -> None:
    attnlab("evaluate", str(trained.directory), "data.test=test.json", folder=folder)
    (path,) = trained.directory.glob("evaluations/test-*/result.json")
    evaluation = json.loads(path.read_text())
    assert evaluation["sentences"] == 12
    for score in ("conala_exact_match", "parses", "slot_accuracy"):
        assert evaluation["metrics"][f"test/{score}"] == 1.0
    lines = [json.loads(line) for line in (path.parent / "test.jsonl").read_text().splitlines()]
    assert {name: value for name, value in lines[0].items() if name not in ("log_p", "p_beam")} == {
        "index": 0,
        "line": 1,
        "source": "sort list var_0",
        "references": ["sorted(never_seen_0)"],
        "hypothesis": "sorted(never_seen_0)",
        "annotations": {"quoted": ["never_seen_0"]},
    }


def test_predict_replaces_and_restores_quoted_names(trained: Run, folder: Path) -> None:
    typed = "count  list `my_things`?\nReverse list `a.b`\n"
    completed = attnlab("predict", str(trained.directory), folder=folder, stdin=typed)
    assert completed.stdout.splitlines() == ["len(my_things)", "a.b[::-1]"]


def test_averaged_weights_are_evaluated_and_saved(averaged: Run, folder: Path) -> None:
    evaluation = averaged.read_result()["metrics"]
    assert evaluation["val/conala_bleu"] > 90
    attnlab("evaluate", str(averaged.directory), folder=folder)
    again = json.loads((averaged.directory / "evaluations" / "val" / "result.json").read_text())["metrics"]
    assert {name: again[name] for name in again} == pytest.approx({name: evaluation[name] for name in again})


def test_ensemble_of_two_runs(trained: Run, averaged: Run, folder: Path) -> None:
    runs = [str(trained.directory), str(averaged.directory)]
    search = ["search.beam_size=3", "reranking=python", "reranking.coverage_penalty=0.2"]
    attnlab("evaluate", *runs, *search, folder=folder)
    (path,) = trained.directory.glob("evaluations/val-*/result.json")
    evaluation = json.loads(path.read_text())
    assert evaluation["ensemble_with"] == [str(averaged.best)]
    assert evaluation["metrics"]["val/conala_bleu"] > 90
    assert evaluation["metrics"]["val/parses"] == 1.0
    single = [run.read_result()["metrics"]["val/loss"] for run in (trained, averaged)]
    assert evaluation["metrics"]["val/loss"] < max(single)  # averaged probabilities are never worse than both
    predicted = attnlab("predict", *runs, folder=folder, stdin="count list `mine`\n")
    assert predicted.stdout == "len(mine)\n", predicted.stderr
