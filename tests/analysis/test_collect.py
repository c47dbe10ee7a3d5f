from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnlab.runs.predictions import Prediction
from attnlab.analysis.collect import collect
from attnlab.errors import UserError
from run_files import study, write_run


def test_a_finished_run_is_read_whole(tmp_path: Path) -> None:
    run = write_run(tmp_path, scores={"test/bleu": 12.5}, sentences=[("a b", "b a", "b a"), ("c", "c", "d")])
    (record,) = collect([tmp_path]).runs
    assert record.directory == run.directory.resolve()
    assert (record.study, record.variant, record.seed) == ("reverse", "additive", 0)
    assert (record.status, record.error, record.finished) == ("finished", None, True)
    assert record.scores == {"test/bleu": 12.5}
    assert (record.parameters, record.steps, record.seconds) == (1234, 30, 90.0)
    assert record.peak_memory == 2**30
    assert record.tokens_per_second == 200.0  # the median of 100, 300, 200
    assert record.seconds_per_step == 0.25  # the median of 1/4, 1/5, 1/2
    assert record.series["train/loss"] == [(9, 2.5)]
    assert record.split == "test"
    assert record.predictions == [Prediction(0, "a b", "b a", "b a"), Prediction(1, "c", "c", "d")]
    assert record.versions == {"python": "3.11.7", "torch": "2.13.0"}
    assert record.commit == "abc"


def test_memory_is_the_gpus_where_there_was_one(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    result = json.loads(run.result.read_text())
    run.result.write_text(json.dumps(result | {"peak_memory": {"host": 7, "gpu": 5}}))
    assert collect([tmp_path]).runs[0].peak_memory == 5


def test_validation_predictions_stand_in_where_there_is_no_test_split(tmp_path: Path) -> None:
    write_run(tmp_path, sentences=[("a", "a", "a")], split="val")
    (record,) = collect([tmp_path]).runs
    assert record.split == "val"
    assert len(record.predictions) == 1


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("running", "still running, or killed before it could say so"),
        ("interrupted", "stopped in good order; the same command goes on"),
        ("failed", "no error was told"),
    ],
)
def test_an_unfinished_run_says_how_it_stands(tmp_path: Path, status: str, told: str) -> None:
    write_run(tmp_path, status=status)
    found = collect([tmp_path])
    assert found.finished == []
    assert [(run.status, run.error) for run in found.unfinished] == [(status, told)]
    assert found.unfinished[0].series["train/loss"] == [(9, 2.5)]  # its curve so far can be drawn


def test_a_failed_run_tells_its_error(tmp_path: Path) -> None:
    run = write_run(tmp_path, status="failed")
    run.result.write_text('{"status": "failed", "error": "CUDA out of memory"}')
    assert [(run.status, run.error) for run in collect([tmp_path]).runs] == [("failed", "CUDA out of memory")]


def test_a_run_without_a_result_waits(tmp_path: Path) -> None:
    write_run(tmp_path, status=None)
    assert [(run.status, run.error) for run in collect([tmp_path]).runs] == [
        ("running", "no result.json yet")
    ]


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("result.json", '{"status": "fin', "JSONDecodeError"),
        ("result.json", '["finished"]', "AttributeError"),
        ("result.json", '{"status": "done"}', "no known status: 'done'"),
        ("result.json", '{"status": "finished"}', "says finished and holds no metrics"),
        ("result.json", '{"status": "finished", "metrics": {"test/bleu": null}}', "TypeError"),
        ("config.yaml", "name: [", "ParserError"),
        ("config.yaml", "a: 1", "lacks name, variant, seed"),
        ("config.yaml", "- a", "AssertionError"),
        ("metrics.csv", "epoch,step,metric,value\n0,x,loss,1\n", "ValueError"),
        ("predictions/test.jsonl", '{"index": 0}\n', "KeyError: 'source'"),
    ],
)
def test_what_cannot_be_read_is_kept_as_broken(tmp_path: Path, file: str, text: str, told: str) -> None:
    whole = write_run(tmp_path, seed=1)
    broken = write_run(tmp_path, "dot", seed=2, sentences=[("a", "a", "a")])
    (broken.directory / file).write_text(text)
    found = collect([tmp_path])
    assert [run.directory.name for run in found.finished] == [whole.directory.name]
    (record,) = found.unfinished
    assert (record.variant, record.seed, record.status) == ("dot", 2, "broken")
    assert told in str(record.error)
    assert found.variants == ["additive"]


def test_a_directory_without_its_config_is_broken(tmp_path: Path) -> None:
    write_run(tmp_path)
    lost = write_run(tmp_path, "dot", 3)
    lost.config.unlink()
    empty = tmp_path / "reverse" / "mean-seed1-00ff00ff"
    empty.mkdir()
    told = [(run.variant, run.seed, run.status) for run in collect([tmp_path]).unfinished]
    assert told == [("dot", 3, "broken"), ("mean", 1, "broken")]


def test_a_last_line_that_is_not_whole_is_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path, status="running")
    run.metrics.write_text("epoch,step,metric,value\n0,9,train/loss,2.5\n0,19,train/loss,2.")
    assert collect([tmp_path]).runs[0].series == {"train/loss": [(9, 2.5)]}


def test_a_run_is_read_once_however_often_it_is_reached(tmp_path: Path) -> None:
    run = write_run(tmp_path / "outputs")
    (tmp_path / "outputs" / "circle").symlink_to(tmp_path / "outputs")
    (tmp_path / "outputs" / "latest").symlink_to(run.directory)
    (run.directory / "evaluations" / "test").mkdir(parents=True)
    (run.directory / "evaluations" / "test" / "result.json").write_text("{}")
    found = collect([tmp_path, tmp_path / "outputs", run.directory, tmp_path / "outputs" / "latest"])
    assert [record.directory for record in found.runs] == [run.directory.resolve()]


def test_a_link_to_a_study_elsewhere_is_followed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "disk")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "study").symlink_to(tmp_path / "disk")
    assert [record.directory for record in collect([tmp_path / "outputs"]).runs] == [run.directory.resolve()]


def test_nothing_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no run directory in .+: give the folder of a study"):
        collect([tmp_path])
    with pytest.raises(UserError, match="missing does not exist"):
        collect([tmp_path / "missing"])


def test_of_copies_one_counts_and_the_others_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "here", status="interrupted")
    counted = write_run(tmp_path / "there", scores={"test/bleu": 10.0})
    write_run(tmp_path / "everywhere", scores={"test/bleu": 10.0}, status="running")
    found = collect([tmp_path])
    assert [run.directory for run in found.finished] == [counted.directory.resolve()]
    assert {run.status for run in found.unfinished} == {"broken"}
    assert all(f"a copy of {counted.directory.resolve()}" in str(run.error) for run in found.unfinished)


def test_variants_that_differ_in_settings_are_told_apart_by_them(tmp_path: Path) -> None:
    for size in (64, 128):
        for seed in (0, 1):
            write_run(tmp_path, seed=seed, decoder={"size": size, "layers": 1})
    write_run(tmp_path, "none", decoder={"size": 64, "layers": 2})
    found = collect([tmp_path])
    assert {variant: len(runs) for variant, runs in found.by_variant().items()} == {
        "additive · decoder.size=64": 2,
        "additive · decoder.size=128": 2,
        "none": 1,
    }


def test_settings_are_told_apart_across_seeds_too(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, optimizer={"lr": 0.1})
    write_run(tmp_path, seed=1, optimizer={"lr": 0.2})
    assert set(collect([tmp_path]).variants) == {"additive · optimizer.lr=0.1", "additive · optimizer.lr=0.2"}


def test_a_setting_that_is_the_seed_tells_nothing_apart(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, seed=seed, data={"_target_": "a", "seed": seed, "cache": f"cache{seed}"})
    assert collect([tmp_path]).variants == ["additive"]


def test_no_more_settings_are_named_than_tell_apart(tmp_path: Path) -> None:
    write_run(tmp_path, decoder={"_target_": "attnlab.nn.LuongDecoder", "input_feeding": True})
    write_run(tmp_path, decoder={"_target_": "attnlab.nn.BahdanauDecoder", "cell": "gru"})
    assert set(collect([tmp_path]).variants) == {
        "additive · decoder=LuongDecoder",
        "additive · decoder=BahdanauDecoder",
    }


def test_runs_of_two_studies_are_told_apart_by_their_names(tmp_path: Path) -> None:
    write_run(tmp_path, name="reverse", encoder={"size": 1, "layers": 1})
    write_run(tmp_path, name="sort", encoder={"size": 2, "layers": 2})
    found = collect([tmp_path])
    assert found.name == "reverse + sort"
    assert set(found.variants) == {"additive · name=reverse", "additive · name=sort"}


def test_variants_stand_in_the_order_of_their_main_score() -> None:
    assert study({"a": [1.0, 3.0], "b": [5.0], "c": [2.0]}).variants == ["b", "a", "c"]
    assert study({"a": [1.0, 3.0], "b": [5.0], "c": [float("nan")]}, "val/loss").variants == ["a", "b", "c"]


def test_the_main_scores_are_of_the_test_split_where_there_is_one(tmp_path: Path) -> None:
    scores = {"val/bleu": 1.0, "val/chrf": 1.0, "val/exact_match": 0.0, "val/loss": 1.0}
    write_run(tmp_path, scores=scores)
    assert collect([tmp_path]).metrics == ["val/bleu", "val/chrf", "val/exact_match"]
    write_run(tmp_path, "none", scores={"test/exact_match": 0.0, "test/conala_bleu": 1.0, **scores})
    assert collect([tmp_path]).metrics == ["test/conala_bleu", "test/exact_match"]
