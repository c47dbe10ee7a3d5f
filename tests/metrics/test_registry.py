"""The registry of metrics."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.metrics import registry
from attnlab.metrics.attention import measure
from attnlab.metrics.registry import DEFAULT_METRICS, MAIN_METRICS, METRICS, MetricInfo
from attnlab.metrics.text import score
from attnlab.metrics.tokens import TokenMetrics
from predictions import predictions_of


def test_importing_the_registry_imports_no_torch() -> None:
    code = "import sys, attnlab.metrics.registry; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", registry.names("text"))
def test_every_text_metric_has_a_function(name: str) -> None:
    assert isinstance(registry.function(name)(predictions_of(("a", "b"))), float)


def test_only_text_metrics_have_functions_counts_and_ranks() -> None:
    for info in METRICS.values():
        if info.kind != "text":
            assert (info.function, info.counts, info.signature, info.default, info.rank) == (
                None,
                None,
                None,
                False,
                None,
            )


def test_the_token_and_attention_metrics_are_those_that_are_computed() -> None:
    assert tuple(TokenMetrics().compute()) == registry.names("token")
    ones = torch.ones(1, 2, 2, dtype=torch.bool)
    measured = measure(ones / 2, ones[0, :1], ones[0, :1], ones)
    assert tuple(f"attention/{name}" for name in measured) == registry.names("attention")


def test_default_and_main_metrics_keep_their_order() -> None:
    assert DEFAULT_METRICS == ("exact_match", "edit_distance", "bleu", "chrf")
    assert MAIN_METRICS == ("conala_bleu", "bleu", "chrf", "exact_match")


def test_a_metric_is_added_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    info = MetricInfo(
        label="hypothesis length", kind="text", direction="lower", function=f"{__name__}:mean_length"
    )
    monkeypatch.setitem(METRICS, "length", info)
    predictions = predictions_of(("a b", ""), ("a b c d", ""))
    assert score(predictions, ["length"]) == {"length": 3}
    assert registry.amount("test/length", 2.5) == "2.500 hypothesis length"
    assert registry.better("val/length") == "lower"


def mean_length(predictions: list[Prediction]) -> float:
    return sum(len(prediction.hypothesis.split()) for prediction in predictions) / len(predictions)


@pytest.mark.parametrize(
    ("metric", "amount"),
    [
        ("test/bleu", "4.1 BLEU"),
        ("val/exact_match", "410.0 points of exact match (val)"),
        ("val/loss", "4.100 nats of loss (val)"),
        ("test/attention/sharpness", "4.100 attention sharpness"),
        ("test/own_metric", "4.100 own metric"),
    ],
)
def test_amounts_name_the_unit_and_the_metric(metric: str, amount: str) -> None:
    assert registry.amount(metric, 4.1) == amount


def test_values_are_converted_to_percent() -> None:
    assert registry.percentage("val/bleu", 12.5) == 12.5
    assert registry.percentage("exact_match", 0.125) == 12.5


def test_signatures_name_the_settings_of_metrics_with_several_definitions() -> None:
    signatures = registry.signatures([*DEFAULT_METRICS, "conala_bleu", "parses"])
    assert list(signatures) == ["bleu", "chrf", "conala_bleu"]
    assert signatures["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert signatures["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert "tok:conala|smooth:none" in signatures["conala_bleu"]


@pytest.mark.parametrize("name", ["blue", "loss"])
def test_unknown_text_metric_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UserError, match=f"Unknown text metric '{name}'. Choose from: exact_match, edit"):
        score(predictions_of(("a", "a")), [name])
