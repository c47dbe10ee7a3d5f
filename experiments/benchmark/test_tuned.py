"""The track "tuned": chosen learning rates, and tables of both tracks."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tuned import AS_IS, best_rates, overrides, rate_scores, section, tracks

from attnlab.report.benchmark import scores
from attnlab.report.benchmark.scores import Results, Score


def run(task: str, model: str, rate: float, score: float) -> SimpleNamespace:
    """Return what is read of a run."""
    metric = "chrf" if task == "marathi" else "exact_match"
    config = {"task": task, "model": model, "metric": metric, "optimizer": {"lr": rate}}
    return SimpleNamespace(config=config, scores={f"val/{metric}": score, "val/loss": 9.0})


def test_best_rate_of_each_task_and_mechanism_on_the_development_set() -> None:
    rows = [
        *(run("sort", "dot", rate, score) for rate, score in ((0.012, 0.7), (0.002, 0.7), (0.005, 0.6))),
        *(run("sort", "additive", rate, score) for rate, score in ((0.012, 0.9), (0.002, 0.95))),
        *(run("marathi", "dot", rate, score) for rate, score in ((0.005, 30.0), (0.012, 31.0))),
        *(run("marathi", "shift", rate, score) for rate, score in ((0.005, 30.0), (0.012, 29.0))),
        run("sort", "shift", 0.002, 0.1),
    ]
    table = rate_scores(SimpleNamespace(finished=rows))  # type: ignore[arg-type]
    assert [*table.score] == [30.0, 31.0, 30.0, 29.0, 95.0, 90.0, 70.0, 60.0, 70.0, 10.0]
    rates = best_rates(table)
    assert rates == {
        ("sort", "dot"): 0.002,
        ("sort", "additive"): 0.002,
        ("sort", "shift"): 0.002,
        ("marathi", "dot"): 0.012,
        ("marathi", "shift"): 0.005,
    }
    assert overrides(rates) == [
        "task=marathi optimizer.lr=0.012 model=dot",
        "task=sort optimizer.lr=0.002 model=additive,dot,shift",
    ]


def test_tables_of_both_tracks() -> None:
    """Two tasks, three seeds; `general` keeps its rate on both tasks, the others change it on one each."""
    (first, *_) = scores.read(scores.STORED)

    def score(task: str, model: str, seed: int, value: float, rate: float = AS_IS) -> Score:
        settings = "" if rate == AS_IS else f"optimizer.lr={rate}"
        cell = {"task": task, "split": "test", "model": model, "seed": seed}
        return replace(first, **cell, score=value, overrides=settings)

    before = {
        ("sort", "additive"): (80, 82, 84),
        ("scan", "additive"): (50, 50, 53),
        ("sort", "dot"): (70, 71, 72),
        ("scan", "dot"): (40, 42, 41),
        ("sort", "general"): (60, 60, 61),
        ("scan", "general"): (30, 33, 30),
    }
    rates = dict.fromkeys(before, AS_IS) | {("sort", "dot"): 0.012, ("scan", "additive"): 0.002}
    stored = Results(score(*cell, seed, row[seed]) for cell, row in before.items() for seed in range(3))
    others = Results([*stored, score("sort", "dot", 3, 99), score("reverse", "dot", 0, 1)])
    tuned = [score("sort", "dot", seed, value, 0.012) for seed, value in enumerate((90, 92, 97))]
    tuned += [score("scan", "additive", seed, value, 0.002) for seed, value in enumerate((52, 51, 53))]
    as_is, own = tracks(rates, others, Results(tuned))
    assert {each.task for each in as_is} == {"sort", "scan"}
    text = section(rates, as_is, own)
    # dot: (55, 56.5, 56.5) becomes (65, 67, 69): +10, 10.5, 12.5, the standard error is 0.764, t = 14.4 with
    # two degrees of freedom, p = 0.0048, by Holm three times that; additive: +1, 0.5, 0, t = 1.73, p = 0.225
    assert "| additive | 66.5 | 67.0 | +0.5 [-0.7, 1.7] (0.451) | – |" in text.replace("\\", "")
    assert "| dot | 56.0 | 67.0 | +11.0 [7.7, 14.3] (0.014) | +0.0" in text.replace("\\", "")
    assert "| general | 45.7 | 45.7 | +0.0 [0.0, 0.0] (1.000) | -21.3" in text.replace("\\", "")
    assert "Best rates: 0.002 1 times, 0.005 4 times, 0.012 1 times" in text
    assert "| dot | 41.0 (+0.0) | 93.0 (+22.0) ↑ |" in text
    assert "| additive | 52.0 (+1.0) ↓ | 82.0 (+0.0) |" in text
    with pytest.raises(KeyError):
        tracks(rates, others, Results(tuned[1:]))
