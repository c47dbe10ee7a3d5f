"""Table of the interquartile mean and the probability of improvement."""

from __future__ import annotations

from dataclasses import replace

from attnlab.report.aggregates import aggregates_table
from attnlab.report.comparison import compare
from attnlab.report.score_figures import performance_profiles
from run_files import study


def test_aggregates_of_each_variant() -> None:
    result = study({"dot": [4.0, 2.0, 3.0, 9.0, 1.0], "none": [1.0, 0.0, 2.0]})
    (table,) = aggregates_table(result, compare(result))
    assert [column.name for column in table.columns] == [
        "variant",
        "runs",
        "interquartile mean of BLEU",
        "probability of improvement over none",
    ]
    dot, none = table.rows
    assert (dot[0].text, dot[1].text, dot[2].value) == ("dot", "5", 3)
    assert dot[3].value == (3 + 3 + 3 + 2.5 + 1.5) / 15
    assert dot[3].interval is not None
    assert (none[2].value, none[3].text) == (1, "")


def test_probability_of_improvement_of_a_loss_prefers_lower_scores() -> None:
    result = study({"dot": [1.0, 1.1, 1.2], "none": [2.0, 2.1, 2.2]}, "test/loss")
    (table,) = aggregates_table(result, compare(result))
    assert table.rows[0][3].value == 1


def test_all_test_sets_of_the_first_metric_are_tasks() -> None:
    result = study({"dot": [1.0, 2.0, 3.0]}, "test/a/bleu")
    runs = [
        replace(run, scores=run.scores | {"test/b/bleu": 10.0 * run.seed, "test/b/chrf": 5.0})
        for run in result.runs
    ]
    metrics = ("test/a/bleu", "test/b/bleu", "test/b/chrf")
    (table,) = aggregates_table(replace(result, runs=runs, selected_metrics=metrics), [])
    assert table.rows[0][2].value == (1 + 2 + 3 + 10) / 4  # of 0, 1, 2, 3, 10, 20


def test_reference_without_a_run_that_has_all_scores_is_named() -> None:
    result = study({"dot": [4.0, 2.0, 3.0], "none": [1.0, 0.0, 2.0]}, "test/a/bleu")
    runs = [
        replace(run, scores=run.scores | ({"test/b/bleu": 5.0} if run.variant == "dot" else {}))
        for run in result.runs
    ]
    partial = replace(result, runs=runs, selected_metrics=("test/a/bleu", "test/b/bleu"))
    (table,) = aggregates_table(partial, compare(partial, reference="none"))
    assert [column.name for column in table.columns][1:] == ["runs", "interquartile mean of BLEU (a)"]
    assert [row[0].text for row in table.rows] == ["dot"]
    assert table.notes[1] == "Without a run that has all scores: none."


def test_two_runs_give_no_aggregates() -> None:
    assert aggregates_table(study({"dot": [1.0, 2.0], "none": [1.0, 2.0]}), []) == []


def test_no_aggregates_without_a_main_metric() -> None:
    result = replace(study({"dot": [4.0, 2.0, 3.0]}, "val/other"), selected_metrics=())
    assert result.metrics == []
    assert aggregates_table(result, []) == []
    assert list(performance_profiles(result, result.by_variant(), {})) == []
