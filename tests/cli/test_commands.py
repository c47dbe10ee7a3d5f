"""The commands, run as a user runs them, and the files that they write."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from attnlab import __version__
from attnlab.cli import evaluate, main
from attnlab.files.metrics_file import read_metrics
from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run
from attnlab.files.terminal import print_table
from attnlab.jobs import worker
from attnlab.metrics import registry
from attnlab.metrics.attention import NAMES
from attnlab.report import workspace
from attnlab.training import checkpoints
from attnlab.training.loggers import flatten
from commands import ATTNLAB, LOGGED_REVERSE, TINY_REVERSE, attnlab, clean_environment
from forked import ForkedProcess
from wandb_files import read_offline, shown

FAITHFULNESS = Path(__file__).parents[2] / "experiments" / "faithfulness"

INPUTS = [index for index in range(21) if index != 4]
"""Test pairs of the tiny task whose source no earlier one has."""


def test_run_directory_contents(trained: Run) -> None:
    assert trained.directory.name.startswith("additive-seed0-")
    result = trained.read_result()
    assert result["status"] == "finished"
    assert result["metrics"]["test/exact_match"] > 0.9
    for prefix in ("attention", "test/attention"):
        assert {f"{prefix}/{name}" for name in NAMES} <= set(result["metrics"])
        assert result["metrics"][f"{prefix}/alignment_accuracy"] > 0.9
        assert result["metrics"][f"{prefix}/monotonicity"] < 0.1
    assert set(result["signatures"]) == {"bleu", "chrf"}
    assert result["command"].startswith("attnlab train data.symbols=5")
    assert {"parameters", "seconds", "peak_memory", "python", "packages", "git_commit"} <= set(result)
    for name in ("attention-1.png", "attention.png", "loss.png", "learning_rate.png", "accuracy.png"):
        with Image.open(trained.figures / name) as picture:
            assert min(picture.size) > 100
        assert (trained.figures / name).with_suffix(".svg").read_text().startswith("<?xml")
    lines = [json.loads(line) for line in (trained.predictions / "test.jsonl").read_text().splitlines()]
    assert [line["index"] for line in lines] == INPUTS
    outputs = read_predictions(trained.attention)
    assert [output.index for output in outputs] == INPUTS
    for output, line in zip(outputs, lines, strict=True):
        assert output.source_tokens == line["source"].split()
        assert output.tokens == [*line["hypothesis"].split(), "<eos>"]
        assert output.weights.sum(axis=1) == pytest.approx(np.ones(len(output.tokens)), abs=0.02)
        pairs = zip(output.tokens, line["references"][0].split(), strict=False)
        correct = [*(ours == theirs for ours, theirs in pairs), False].index(False)
        size = len(output.source_tokens)
        assert output.alignment == [[row, size - 1 - row] for row in range(correct)]
    with Image.open(trained.figures / "attention-1.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(2**24)}
    # Orange frames mark the gold alignment, as long as the output equals the reference
    assert ((213, 94, 0) in colours) == bool(outputs[0].alignment)
    exact = sum([line["hypothesis"]] == line["references"] for line in lines) / 20
    assert result["metrics"]["test/exact_match"] == pytest.approx(exact)
    assert "epoch 12/12" in trained.log.read_text()


def test_metrics_csv_contains_every_curve(trained: Run) -> None:
    series = read_metrics(trained.metrics)
    for name in ("loss", "perplexity", "token_accuracy", "exact_match", "bleu", "chrf"):
        assert len(series[f"val/{name}"]) == 12, name
    assert {f"attention/{name}" for name in NAMES} <= set(series)
    assert {"train/loss", "lr-Adam", "throughput/tokens_per_second", "test/exact_match"} <= set(series)


def test_offline_wandb_run_equals_metrics_csv(trained: Run) -> None:
    offline = read_offline(trained.directory)
    assert offline["id"] == trained.hash
    assert (offline["group"], offline["job_type"]) == ("reverse", "additive")
    assert offline["tags"] == ["pilot", "tiny"]
    assert offline["exit_code"] == 0
    assert offline["config"].items() >= flatten(trained.read_config()).items()
    assert offline["config"]["encoder/size"] == 16
    assert offline["config"]["attention/_target_"] == "attnlab.nn.attention.Additive"

    assert "Weights & Biases" not in trained.log.read_text()  # else a warning explains what is missing
    history = offline["history"]
    for name, series in read_metrics(trained.metrics).items():
        assert [(row["trainer/global_step"], row[name]) for row in history if name in row] == series, name
    assert offline["step_metrics"]["*"] == "trainer/global_step"
    steps = [row["trainer/global_step"] for row in history]
    assert steps == sorted(steps)
    # Pictures are kept as attention/1/filenames, tables as predictions/test/path
    logged = {name for row in history for name in row}
    for name in shown(workspace.build_workspace("me", "attnlab", "reverse")):
        assert logged & {name, f"{name}/filenames", f"{name}/path"}, name
    assert list(trained.directory.glob("wandb/offline-run-*/files/media/images/attention/*.png"))


def test_checkpoint_loads_with_weights_only(trained: Run) -> None:
    checkpoint = torch.load(trained.best, weights_only=True)
    config, vocabularies = checkpoints.read_contents(checkpoint, trained.best)
    assert config.data.task == "reverse"
    assert vocabularies.source.encode("3 7") == [3, 7]
    assert checkpoint["attnlab"]["wandb_id"] == trained.hash


def test_finished_run_is_not_trained_again(trained: Run, folder: Path) -> None:
    before, config = trained.result.stat().st_mtime_ns, trained.config.read_bytes()
    completed = attnlab("train", *LOGGED_REVERSE, "trainer.log_every_n_steps=7", folder=folder)
    assert "already finished" in completed.stdout
    assert "force=true" in completed.stdout
    assert (trained.result.stat().st_mtime_ns, trained.config.read_bytes()) == (before, config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "missing"),
    [
        (["trainer.fast_dev_run=true"], None),
        (["trainer.limit_val_batches=0"], "val/loss"),
        (["trainer.limit_test_batches=0"], "test/loss"),
    ],
)
def test_limits_of_the_trainer_leave_a_finished_run(
    limits: list[str], missing: str | None, tmp_path: Path
) -> None:
    attnlab("train", *TINY_REVERSE, "trainer.max_epochs=1", *limits, folder=tmp_path)
    (directory,) = (tmp_path / "outputs" / "reverse").iterdir()
    result = Run(directory).read_result()
    assert result["status"] == "finished"
    assert {"val/loss", "test/loss"} - {*result["metrics"]} == ({missing} if missing else set())


@pytest.mark.slow
def test_settings_of_the_trainer_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    settings = ("trainer.val_check_interval=500", "trainer.check_val_every_n_epoch=1")
    completed = attnlab("train", *TINY_REVERSE, *settings, folder=tmp_path, code=2)
    assert "`val_check_interval` (500) must be less than or equal" in completed.stderr
    assert "stack trace" not in completed.stderr


@pytest.mark.slow
def test_evaluate_with_other_settings(trained: Run, folder: Path) -> None:
    completed = attnlab("evaluate", str(trained.directory), folder=folder)
    assert completed.stderr == ""
    evaluation = json.loads((trained.directory / "evaluations" / "test" / "result.json").read_text())
    assert evaluation["metrics"] == pytest.approx(
        {name: value for name, value in trained.read_result()["metrics"].items() if name.startswith("test/")}
    )
    settings = ("--split", "test", "data.test_lengths=[5,6]", "search.beam_size=2")
    longer = attnlab("evaluate", str(trained.directory), *settings, folder=folder)
    (folder_of_longer,) = (trained.directory / "evaluations").glob("test-*")
    lines = (folder_of_longer / "test.jsonl").read_text().splitlines()
    assert {len(json.loads(line)["source"].split()) for line in lines} == {5, 6}
    rows = json.loads((folder_of_longer / "result.json").read_text())["by_length"]
    assert [(row["shortest"], row["longest"]) for row in rows] == [(5, 5), (6, 6)]
    for row in rows:
        assert re.search(rf"│ +{row['shortest']} │ +{row['sentences']} │", longer.stdout)
        right = [
            [sample["hypothesis"]] == sample["references"]
            for sample in map(json.loads, lines)
            if len(sample["source"].split()) == row["shortest"]
        ]
        assert row["sentences"] == len(right)
        assert row["scores"]["exact_match"] == pytest.approx(sum(right) / len(right))
    with Image.open(folder_of_longer / "by_length.png") as picture:
        assert min(picture.size) > 100


@pytest.mark.slow
def test_evaluate_with_attention_interventions(trained: Run, folder: Path) -> None:
    completed = attnlab("evaluate", str(trained.directory), "attention_override=all", folder=folder)
    evaluation, folder_of_all = overridden(trained, "attention_override=all")
    expected = trained.read_result()["metrics"]["test/exact_match"]
    assert evaluation["metrics"]["test/exact_match"] == pytest.approx(expected)
    changed = evaluation["attention_override"]
    assert list(changed) == ["uniform", "shuffled", "argmax", "previous", "none"]
    assert changed["argmax"]["drops"]["test/exact_match"] < 0.2  # its weights are nearly one-hot already
    for name in ("uniform", "shuffled", "previous", "none"):
        scores, drops = changed[name]["metrics"], changed[name]["drops"]
        assert drops["test/exact_match"] == pytest.approx(expected - scores["test/exact_match"])
        assert drops["test/exact_match"] > 0.3, name
        assert f" {100 * scores['test/exact_match']:.1f} " in completed.stdout
        assert f" {100 * drops['test/exact_match']:+.1f} " in completed.stdout
        assert len((folder_of_all / name / "test.jsonl").read_text().splitlines()) == 20

    attnlab("evaluate", str(trained.directory), "attention_override=shuffled", folder=folder)
    evaluation, _ = overridden(trained, "attention_override=shuffled")
    assert evaluation["metrics"] == pytest.approx(changed["shuffled"]["metrics"])
    assert "attention_override" not in evaluation


@pytest.mark.slow
def test_evaluate_counts_the_decoded_sentences(trained: Run, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["trainer.limit_test_batches=1", "batching.batch_size=4"]
    assert main.run(["evaluate", str(trained.directory), *settings]) == 0
    assert "test · 4 of " in capsys.readouterr().out
    evaluation, _ = overridden(trained, *settings)
    assert evaluation["sentences"] == sum(row["sentences"] for row in evaluation["by_length"]) == 4


@pytest.mark.slow
def test_evaluate_explains_predictions(
    trained: Run, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "METRICS", {**registry.METRICS})  # which the scorecard adds to
    gold = folder / "gold.txt"
    gold.write_text("".join(f"{i % 2}-0 1?1\n" for i in range(20)))
    settings = ["explain=all", "explain.sentences=7", f"explain.alignments={gold}"]
    command = ["evaluate", str(trained.directory), "--config-dir", str(FAITHFULNESS / "conf")]
    assert main.run([*command, *settings]) == 0
    assert re.search(r"alignment error rate \[%\] +│", capsys.readouterr().out)
    _, evaluation = overridden(trained, *settings)
    card = json.loads((evaluation / "explanations.json").read_text())
    assert (card["split"], card["overrides"]) == ("test", settings)
    scores = card["scores"]
    assert scores["comprehensiveness"]["sentences"] == 7
    # the network has learned to reverse: the largest weight is at the token that it depends on
    assert scores["erasure_top"]["value"] > 0.8
    assert scores["comprehensiveness"]["value"] > scores["comprehensiveness_random"]["value"] + 0.1
    assert scores["sufficiency"]["value"] < scores["sufficiency_random"]["value"] - 0.1

    for setting, code, message in (
        ("explain.measures=[gradients]", 2, "must be a list with some of gradient, integ"),
        ("explain.sentences=0", 2, "explain.sentences=0: must be a whole number ≥ 1"),
        (f"explain.alignments={folder}/none", 1, "none does not exist"),
    ):
        assert main.run([*command, "explain=all", setting]) == code
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_evaluate_explains_no_network_without_weights(folder: Path) -> None:
    attnlab("train", *TINY_REVERSE, "attention=none", "name=none", "trainer.max_epochs=1", folder=folder)
    (run,) = (folder / "outputs" / "none").iterdir()
    options = ("--config-dir", str(FAITHFULNESS / "conf"), "explain=all")
    refused = attnlab("evaluate", str(run), *options, folder=folder, code=1)
    assert "explain: this network has no attention weights; choose a run with" in refused.stderr


def overridden(run: Run, *overrides: str) -> tuple[dict[str, Any], Path]:
    """Return the result of the evaluation with these overrides, and its folder."""
    results = [
        (json.loads(path.read_text()), path.parent)
        for path in run.directory.glob("evaluations/*/result.json")
    ]
    (result,) = (result for result in results if result[0]["overrides"] == [*overrides])
    return result


def test_evaluations_of_two_checkpoints_use_two_folders(trained: Run, folder: Path) -> None:
    for argument in (str(trained.directory), str(trained.last)):
        attnlab("evaluate", argument, "search.max_length=5", folder=folder)
    results = [json.loads(path.read_text()) for path in trained.directory.glob("evaluations/*/result.json")]
    checkpoint_files = {
        result["checkpoint"] for result in results if result["overrides"] == ["search.max_length=5"]
    }
    assert checkpoint_files == {str(trained.best), str(trained.last)}


@pytest.mark.slow
def test_zero_attention_weights_have_no_metric_drops(tmp_path: Path) -> None:
    attnlab(
        "train", *TINY_REVERSE, "attention=monotonic", "attention.offset=-90",
        "trainer.max_epochs=1", folder=tmp_path,
    )  # fmt: skip
    (directory,) = (tmp_path / "outputs" / "reverse").iterdir()
    attnlab("evaluate", str(directory), "attention_override=all", folder=tmp_path)
    evaluation, _ = overridden(Run(directory), "attention_override=all")
    uniform = evaluation["attention_override"]["uniform"]
    assert "test/attention/entropy" in uniform["metrics"]
    assert "test/attention/entropy" not in uniform["drops"]


def test_value_of_an_option_can_be_the_name_of_a_group(tmp_path: Path) -> None:
    completed = attnlab("train", "--cfg", "job", "--package", "attention", folder=tmp_path)
    assert "attnlab.nn.attention.Additive" in completed.stdout


def test_scores_are_not_cut_in_narrow_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    scores = {"val/token_accuracy": 0.5, "test/token_accuracy": 0.25, "attention/alignment_accuracy": 1.0}
    worker._print_scores(Run(tmp_path / "additive-seed0-12345678"), scores)
    lines = capsys.readouterr().out.splitlines()
    assert any(re.search(r"token accuracy \[%\] +│ +50\.0 +│ +25\.0", line) for line in lines), lines
    assert any("alignment accuracy" in line for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_error_rates_have_one_unit_in_the_tables_of_train_and_evaluate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stored: WER in percent, the others as fractions of 1."""
    scores = {"exact_match": 0.83, "wer": 17.0, "ser": 0.034, "per": 0.034, "cer": 1.25}
    worker._print_scores(Run(tmp_path / "a-seed0-12345678"), {f"test/{k}": v for k, v in scores.items()})
    trained = capsys.readouterr().out
    tables = (
        evaluate._metrics_table({f"test/{name}": value for name, value in scores.items()}, {}, "test"),
        evaluate._scores_table(("sources",), [(("known",), scores)], "known: in the training split"),
    )
    for table in tables:
        print_table(table)
    evaluated = capsys.readouterr().out
    for label, value in {"WER": "17.0", "SER": "3.4", "PER": "3.4", "CER": "125.0"}.items():
        for printed in (trained, evaluated):
            assert re.search(rf"{label} \[%\] +│ +{value} ", printed), printed
    cells = [str(next(iter(column.cells))) for column in tables[1].columns]
    assert cells == ["known", "83.0", "17.0", "3.4", "3.4", "125.0"]
    assert [str(column.header) for column in tables[1].columns][-1] == "CER [%]"


def test_terminal_of_no_columns_prints_everything(
    trained: Run, run_on: Callable[..., tuple[int, list[str], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")  # some editors and CI systems set it; rich prints nothing then
    code, output, _ = run_on("3 4\n", "predict", str(trained.directory), "--attention", "-")
    assert code == 0
    assert any("<eos>" in line for line in output)


@pytest.mark.parametrize("arguments", [["--version"], ["train", "--version"], ["score", "--version"]])
def test_version_is_that_of_attnlab(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.slow
def test_train_help_lists_the_groups(tmp_path: Path) -> None:
    completed = attnlab("train", "--help", folder=tmp_path)
    assert "study: attention_variants, benchmark_v1, bottleneck" in completed.stdout
    assert 'eval "$(attnlab completion)"' in completed.stdout


@pytest.mark.slow
def test_missing_or_broken_data_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "conala.json"
    broken.write_text('[{"intent": "a", ')
    for path, message in ((tmp_path / "none.json", "does not exist"), (broken, "conala.json")):
        completed = attnlab("train", "data=conala", f"data.path={path}", folder=tmp_path, code=2)
        assert message in completed.stderr.replace("\n", "")
        assert "Traceback" not in completed.stderr
    assert list(tmp_path.iterdir()) == [broken]


@pytest.mark.slow
def test_traceback_option_shows_the_stack_trace(tmp_path: Path) -> None:
    completed = attnlab("predict", "nowhere", "--traceback", folder=tmp_path, code=1)
    assert "Traceback" in completed.stderr


@pytest.mark.slow
def test_non_finite_loss_fails_the_run(tmp_path: Path) -> None:
    arguments = [*TINY_REVERSE, "logger=wandb", "trainer.max_epochs=3", "optimizer.lr=1e38", "optimizer=sgd"]
    completed = attnlab(
        "train", *arguments, "trainer.gradient_clip_val=null", "scheduler=constant", folder=tmp_path, code=1
    )
    assert re.search(r"The (loss|gradient norm) is (inf|nan) at step", completed.stderr.replace("\n", " "))
    begin = ("importing PyTorch", "reading the data", "building the network")
    places = [completed.stderr.find(message) for message in begin]
    assert -1 not in places
    assert places == sorted(places)
    (path,) = tmp_path.glob("outputs/reverse/*/result.json")
    assert json.loads(path.read_text())["status"] == "failed"
    assert read_offline(path.parent)["exit_code"] == 1


@pytest.mark.slow
def test_interrupted_run_saves_and_resumes(tmp_path: Path) -> None:
    arguments = [*TINY_REVERSE, "trainer.max_epochs=8", "data.train_size=400"]
    process = ForkedProcess([ATTNLAB, "train", *arguments], cwd=tmp_path, env=clean_environment())
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not list(tmp_path.glob("outputs/reverse/*/checkpoints/last.ckpt")):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)  # test_sweeps.py and test_resume.py send SIGINT
    assert process.wait(60) == 75
    (directory,) = (tmp_path / "outputs" / "reverse").iterdir()
    run = Run(directory)
    assert run.read_result()["status"] == "interrupted"
    stopped_at = checkpoints.read_checkpoint(run.last)["global_step"]
    assert 0 < stopped_at < 8 * 25

    completed = attnlab("train", *arguments, folder=tmp_path)
    assert f"resuming from step {stopped_at}" in completed.stderr.replace("\n", " ")
    assert run.read_result()["status"] == "finished"
    series = read_metrics(run.metrics)
    steps = [step for step, _ in series["train/loss"]]
    assert steps == sorted(set(steps))
