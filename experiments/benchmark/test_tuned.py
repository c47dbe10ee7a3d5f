"""The chosen learning rates, from runs of two mechanisms."""

from types import SimpleNamespace

from tuned import chosen_rates, overrides


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
        run("sort", "shift", 0.002, 0.1),
    ]
    rates = chosen_rates(SimpleNamespace(finished=rows))
    assert rates == {
        ("sort", "dot"): 0.002,
        ("sort", "additive"): 0.002,
        ("sort", "shift"): 0.002,
        ("marathi", "dot"): 0.012,
    }
    assert overrides(rates) == [
        "task=marathi optimizer.lr=0.012 model=dot",
        "task=sort optimizer.lr=0.002 model=additive,dot,shift",
    ]
