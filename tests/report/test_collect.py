"""Reading of run directories, and the names of variants."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.report.collect import collect, read_evaluations
from attnlab.report.study import undefined_scores, unfinished_lines
from attnlab.report.study_tables import scores_table
from run_files import study, with_result, write_run


def test_evaluations_of_a_run_are_sorted_by_folder(tmp_path: Path) -> None:
    assert read_evaluations(tmp_path) == []
    folders = [tmp_path / "evaluations" / name for name in ("test", "test-12345678", "val")]
    for folder in reversed(folders):
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"split": folder.name}))
    assert read_evaluations(tmp_path) == [(folder, {"split": folder.name}) for folder in folders]


def test_record_of_a_finished_run(tmp_path: Path) -> None:
    run = write_run(tmp_path, scores={"test/bleu": 12.5}, sentences=[("a b", "b a", "b a"), ("c", "c", "d")])
    (record,) = collect([tmp_path]).runs
    assert record.directory == run.directory.resolve()
    assert (record.study, record.variant, record.seed) == ("reverse", "additive", 0)
    assert (record.status, record.error, record.finished) == ("finished", None, True)
    assert record.scores == {"test/bleu": 12.5}
    assert (record.parameters, record.steps, record.seconds) == (1234, 30, 90.0)
    assert record.peak_memory == 2**30
    assert record.tokens_per_second == 200.0  # median of 100, 300, 200
    assert record.seconds_per_step == 0.25  # median of 1/4, 1/5, 1/2
    assert record.series["train/loss"] == [(9, 2.5)]
    assert record.predictions == {
        "test": [
            Prediction(index=0, source="a b", references=("b a",), hypothesis="b a"),
            Prediction(index=1, source="c", references=("c",), hypothesis="d"),
        ]
    }
    assert record.predictions["test"][0].rank == 1
    assert record.versions == {"python": "3.11.7", "torch": "2.13.0"}
    assert (record.commit, record.cpu) == ("abc", "Sparrow 2")


def test_peak_memory_is_of_the_gpu_if_there_is_one(tmp_path: Path) -> None:
    with_result(write_run(tmp_path), peak_memory={"host": 7, "gpu": 5})
    assert collect([tmp_path]).runs[0].peak_memory == 5


def test_validation_predictions_are_read_without_a_test_split(tmp_path: Path) -> None:
    write_run(tmp_path, scores={"val/bleu": 50.0}, sentences=[("a", "a", "a")], split="val")
    (record,) = collect([tmp_path]).runs
    assert {split: len(decoded) for split, decoded in record.predictions.items()} == {"val": 1}


@pytest.mark.parametrize(
    ("status", "recorded", "error"),
    [
        ("running", {}, "still running, or killed"),
        ("interrupted", {}, "run the same command again to resume it"),
        ("failed", {}, "result.json contains no error message"),
        ("failed", {"error": "CUDA out of memory"}, "CUDA out of memory"),
    ],
)
def test_unfinished_run_has_status_and_reason(
    tmp_path: Path, status: str, recorded: dict[str, str], error: str
) -> None:
    with_result(write_run(tmp_path, status=status), **recorded)
    study = collect([tmp_path])
    assert study.finished == []
    assert [(run.status, run.error) for run in study.unfinished] == [(status, error)]
    assert study.unfinished[0].series["train/loss"] == [(9, 2.5)]  # its curves are read


def test_run_without_a_result_is_not_started(tmp_path: Path) -> None:
    for seed in (0, 2):
        write_run(tmp_path, seed=seed, status=None)
    write_run(tmp_path, "dot", 1, status="running")
    study = collect([tmp_path])
    assert {run.status for run in study.runs} == {"not started", "running"}
    assert unfinished_lines(study) == [
        ("additive", "seeds 0, 2", "not started – run the same command again to train it"),
        ("dot", "seed 1", "running – still running, or killed"),
    ]


def test_undefined_scores_are_kept_with_their_reasons(tmp_path: Path) -> None:
    for variant, seed in (("dot", 0), ("dot", 1), ("none", 0)):
        run = write_run(tmp_path, variant, seed, scores={"test/chrf": 1.0})
        if variant == "dot":
            with_result(run, undefined={"test/bleu": "no 4-grams"})
    study = collect([tmp_path])
    assert study.metrics == ["test/chrf"]
    assert undefined_scores(study) == ["BLEU is undefined for dot: no 4-grams."]
    assert scores_table(study).notes[-1] == "BLEU is undefined for dot: no 4-grams."
    alone = replace(study, runs=[run for run in study.runs if run.variant == "dot"])
    assert undefined_scores(alone) == ["BLEU is undefined: no 4-grams."]


@pytest.mark.parametrize(
    ("file", "text", "error"),
    [
        ("result.json", '{"status": "fin', "result.json cannot be read: Unterminated string"),
        ("result.json", "", "result.json cannot be read: Expecting value"),
        ("result.json", '["finished"]', "result.json is not a JSON object"),
        ("result.json", '{"status": "done"}', "unknown status 'done'"),
        ("result.json", '{"status": "finished"}', "has status 'finished' but no metrics"),
        ("result.json", '{"status": "finished", "metrics": {"test/bleu": null}}', "but no metrics"),
        ("config.yaml", "name: [", "config.yaml is not valid YAML"),
        ("config.yaml", "a: 1", "lacks name, variant, seed"),
        ("config.yaml", "- a", "it is not a mapping"),
        ("config.yaml", "{name: n, variant: dot, seed: [1]}", "seed=[1], which is not a whole number"),
        ("metrics.csv", "epoch,step,metric,value\n0,x,loss,1\n", "metrics.csv cannot be read: invalid"),
        ("metrics.csv", f"epoch,step,metric,value\n0,{10**20},loss,1\n", "is too large"),
        ("metrics.csv", "epoch,step,metric\n0,1,loss\n", "metrics.csv cannot be read: 'value'"),
        ("predictions/test.jsonl", '{"index": 0}\n', "test.jsonl is not a valid file of predictions"),
        (
            "predictions/test.jsonl",
            '{"index": 0, "source": "a", "references": ["b"], "hypothesis": 1}\n',
            "text or token that is not a string",
        ),
    ],
)
def test_unreadable_run_is_kept_as_broken(tmp_path: Path, file: str, text: str, error: str) -> None:
    whole = write_run(tmp_path, seed=1)
    broken = write_run(tmp_path, "dot", seed=2, sentences=[("a", "a", "a")])
    (broken.directory / file).write_text(text)
    study = collect([tmp_path])
    assert [run.directory.name for run in study.finished] == [whole.directory.name]
    (record,) = study.unfinished
    assert (record.variant, record.seed, record.status) == ("dot", 2, "broken")
    assert error in str(record.error)
    assert study.variants == ["additive"]


def test_directory_without_config_is_broken(tmp_path: Path) -> None:
    write_run(tmp_path)
    lost = write_run(tmp_path, "dot", 3)
    lost.config.unlink()
    empty = tmp_path / "reverse" / "mean-seed1-00ff00ff"
    empty.mkdir()
    assert states(tmp_path) == [("dot", 3, "broken"), ("mean", 1, "broken")]
    lost.directory.rename(lost.directory.with_name("renamed"))
    assert sorted(states(tmp_path)) == [("mean", 1, "broken"), ("renamed", -1, "broken")]


def states(folder: Path) -> list[tuple[str, int, str]]:
    return [(run.variant, run.seed, run.status) for run in collect([folder]).unfinished]


def test_each_run_is_read_once_despite_symbolic_links(tmp_path: Path) -> None:
    run = write_run(tmp_path / "outputs")
    (tmp_path / "outputs" / "circle").symlink_to(tmp_path / "outputs")
    (tmp_path / "outputs" / "latest").symlink_to(run.directory)
    (run.directory / "evaluations" / "test").mkdir(parents=True)
    (run.directory / "evaluations" / "test" / "result.json").write_text("{}")
    study = collect([tmp_path, tmp_path / "outputs", run.directory, tmp_path / "outputs" / "latest"])
    assert [record.directory for record in study.runs] == [run.directory.resolve()]


def test_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_run(tmp_path / "outputs")
    assert len(collect([Path("~/outputs")]).runs) == 1


def test_missing_runs_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"contains no run directory. Give the folder of a study"):
        collect([tmp_path])
    with pytest.raises(UserError, match="missing does not exist"):
        collect([tmp_path / "missing"])


def test_duplicates_are_marked_as_broken(tmp_path: Path) -> None:
    write_run(tmp_path / "here", status="interrupted")
    counted = write_run(tmp_path / "there", scores={"test/bleu": 10.0})
    third = write_run(tmp_path / "everywhere", scores={"test/bleu": 10.0}, status="running")
    config = yaml.safe_load(third.config.read_text())
    config["data"] = dict(reversed(config["data"].items()))
    third.config.write_text(yaml.safe_dump(config, sort_keys=False))
    study = collect([tmp_path])
    assert [run.directory for run in study.finished] == [counted.directory.resolve()]
    assert {run.status for run in study.unfinished} == {"broken"}
    assert all(f"duplicate of {counted.directory.resolve()}" in str(run.error) for run in study.unfinished)


def test_runs_without_config_are_no_duplicates(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder / "outputs" / "dot-seed3-0123abcd" / "checkpoints").mkdir(parents=True)
        (tmp_path / folder / "outputs" / "dot-seed3-0123abcd" / "result.json").write_text("{}")
    errors = [str(run.error) for run in collect([tmp_path]).runs]
    assert len(errors) == 2
    assert not any("duplicate" in error for error in errors)


def test_interpolations_of_a_foreign_config_are_not_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLAB_SECRET", "hunter2")
    run = write_run(tmp_path)
    config = run.config.read_text().replace("name: reverse", "name: ${oc.env:ATTNLAB_SECRET}")
    run.config.write_text(f"{config}note: ${{oc.env:ATTNLAB_SECRET}}\nmissing: ${{nowhere}}\n")
    (record,) = collect([tmp_path]).runs
    assert record.finished
    assert record.study == record.config["note"] == "${oc.env:ATTNLAB_SECRET}"
    assert "hunter2" not in str(record)


def test_variants_are_ranked_by_the_first_metric() -> None:
    assert study({"a": [1.0, 3.0], "b": [5.0], "c": [2.0]}).variants == ["b", "a", "c"]
    assert study({"a": [1.0, 3.0], "b": [5.0], "c": [float("nan")]}, "val/loss").variants == ["a", "b", "c"]
    assert study({"a": [6.0, float("nan")], "b": [5.0]}).variants == ["a", "b"]


def test_standstill_does_not_count_as_a_speed(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    run.metrics.write_text(f"{run.metrics.read_text()}1,39,throughput/steps_per_second,0.0\n")
    (record,) = collect([tmp_path]).runs
    assert record.seconds_per_step == 0.25  # as without that line


def test_default_metrics_are_of_the_test_split_if_available(tmp_path: Path) -> None:
    scores = {"val/bleu": 1.0, "val/chrf": 1.0, "val/exact_match": 0.0, "val/loss": 1.0}
    write_run(tmp_path, scores=scores)
    assert collect([tmp_path]).metrics == ["val/bleu", "val/chrf", "val/exact_match"]
    write_run(tmp_path, "none", scores={"test/exact_match": 0.0, "test/conala_bleu": 1.0, **scores})
    assert collect([tmp_path]).metrics == ["test/conala_bleu", "test/exact_match"]


def test_metric_that_selects_the_checkpoint_comes_first(tmp_path: Path) -> None:
    scores = {"test/bleu": 1.0, "test/exact_match": 0.0}
    write_run(tmp_path, scores=scores, checkpoint={"monitor": "val/exact_match"})
    assert collect([tmp_path]).metrics == ["test/exact_match", "test/bleu"]


def test_exact_match_comes_first_where_inputs_are_no_sentences(tmp_path: Path) -> None:
    scores = {"test/bleu": 1.0, "test/exact_match": 0.0}
    for name, source, first in (("symbols", "3 4 5", "exact_match"), ("words", "a small dog", "bleu")):
        write_run(tmp_path, name=name, scores=scores, sentences=[(source, source, source)])
        assert collect([tmp_path / name]).metrics[0] == f"test/{first}"


def test_variants_are_distinguished_by_their_settings(tmp_path: Path) -> None:
    for size in (64, 128):
        for seed in (0, 1):
            write_run(tmp_path, seed=seed, decoder={"size": size, "layers": 1})
    write_run(tmp_path, "none", decoder={"size": 64, "layers": 2})
    study = collect([tmp_path])
    assert {variant: len(runs) for variant, runs in study.by_variant().items()} == {
        "additive · decoder.size=64": 2,
        "additive · decoder.size=128": 2,
        "none": 1,
    }


def test_settings_equal_to_the_seed_do_not_distinguish_variants(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, seed=seed, data={"_target_": "a", "seed": seed, "cache": f"cache{seed}"})
    assert collect([tmp_path]).variants == ["additive"]


def test_distinguishing_settings_are_minimal(tmp_path: Path) -> None:
    write_run(tmp_path, decoder={"_target_": "attnlab.nn.LuongDecoder", "input_feeding": True})
    write_run(tmp_path, decoder={"_target_": "attnlab.nn.BahdanauDecoder", "cell": "gru"})
    assert set(collect([tmp_path]).variants) == {
        "additive · decoder=LuongDecoder",
        "additive · decoder=BahdanauDecoder",
    }


def test_runs_of_two_studies_are_distinguished_by_name(tmp_path: Path) -> None:
    write_run(tmp_path, name="reverse", encoder={"size": 1, "layers": 1})
    write_run(tmp_path, name="sort", encoder={"size": 2, "layers": 2})
    study = collect([tmp_path])
    assert study.name == "reverse + sort"
    assert set(study.variants) == {"additive · name=reverse", "additive · name=sort"}
