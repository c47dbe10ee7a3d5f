import json
import subprocess
import sys

import pytest
import torch
import torchmetrics.text

from attnlab.errors import UserError
from attnlab.metrics import registry
from attnlab.metrics.attention import measure
from attnlab.metrics.registry import METRICS, score, text_metric
from attnlab.metrics.texts import Texts
from attnlab.metrics.tokens import TokenMetrics
from predictions import predictions_of


def test_importing_the_registry_imports_no_torch() -> None:
    code = "import sys, attnlab.metrics.registry; assert not {'torch', 'sacrebleu'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_text_metrics_have_functions_counts_and_ranks() -> None:
    for info in METRICS.values():
        own = (info.function, info.counts, info.signature, info.default or None, info.rank)
        assert (info.function is not None) if info.kind == "text" else own == (None,) * 5


def test_the_token_and_attention_metrics_are_those_that_are_computed() -> None:
    assert tuple(TokenMetrics().compute()) == registry.names("token")
    ones = torch.ones(1, 2, 2, dtype=torch.bool)
    measured = measure(ones / 2, ones[0, :1], ones[0, :1], ones)
    assert tuple(f"attention/{name}" for name in measured) == registry.names("attention")


def test_default_and_main_metrics() -> None:
    assert registry.default_metrics() == ("bleu", "chrf", "edit_distance", "exact_match")
    assert registry.main_metrics() == ("conala_bleu", "bleu", "chrf", "exact_match", "wer")


def test_a_metric_is_added_by_a_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METRICS", {**METRICS})

    @text_metric(label="hypothesis length", direction="lower")
    def length(texts: Texts) -> float:
        return sum(len(text.split()) for text in texts.hypotheses) / len(texts.hypotheses)

    texts = Texts(predictions_of(("a b", ""), ("a b c d", "")))
    assert score(texts, ["length"]).values == {"length": 3}
    added = registry.metric("test/length")
    assert added.amount(2.5) == "2.500 hypothesis length"
    assert added.direction == "lower"
    assert "length" not in METRICS


@pytest.mark.parametrize(
    ("metric", "amount"),
    [
        ("test/bleu", "4.1 BLEU"),
        ("val/exact_match", "410.0 points of exact match (val)"),
        ("val/wer", "4.1 points of WER (val)"),
        ("val/loss", "4.100 nats of loss (val)"),
        ("test/attention/sharpness", "4.100 attention sharpness"),
        ("test/own_metric", "4.100 own metric"),
    ],
)
def test_amounts_name_the_unit_and_the_metric(metric: str, amount: str) -> None:
    assert registry.metric(metric).amount(4.1) == amount


def test_only_amounts_that_are_not_zero_are_less_than_the_last_digit() -> None:
    bleu = registry.metric("test/bleu")
    assert bleu.amount(0.0) == "0.0 BLEU"
    assert bleu.amount(0.04) == "less than 0.1 BLEU"


def test_values_are_converted_to_a_scale_of_100() -> None:
    values = {"val/bleu": 12.5, "exact_match": 0.125, "val/wer": 12.5, "val/ser": 0.125}
    assert [registry.metric(name).of_100(value) for name, value in values.items()] == [12.5] * 4


@pytest.mark.parametrize(
    ("name", "stored"),
    [("exact_match", 0.1704), ("wer", 17.04), ("ser", 0.1704), ("per", 0.1704), ("cer", 0.1704)],
)
def test_shares_and_error_rates_are_displayed_in_percent(name: str, stored: float) -> None:
    metric = registry.metric(f"test/{name}")
    assert metric.heading.endswith(" [%]")
    assert metric.number(stored) == "17.0"
    assert metric.number(stored, "+") == "+17.0"
    assert metric.with_unit(stored) == "17.0 %"


def test_other_values_have_four_digits_in_lines_and_large_ones_an_exponent() -> None:
    loss = registry.metric("val/loss")
    assert [loss.with_unit(value) for value in (0.012346, 12.5)] == ["0.01235", "12.5"]
    assert registry.metric("perplexity").number(1.25e30) == "1.25e+30"


def test_description_of_a_foreign_metric_restores_its_label_and_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METRICS", dict(METRICS))

    @text_metric(label="capitals", format="share", direction="lower")
    def capitals(texts: Texts) -> float:
        return 0.5

    described = json.loads(json.dumps(registry.describe_foreign(["bleu", "capitals", "loss"])))
    assert list(described) == ["capitals"]
    del registry.METRICS["capitals"]
    damaged = {"a": None, "b": {"label": "b", "format": "?"}, "c": {"label": 3, "format": "share"}}
    registry.register_described({**damaged, "bleu": {"label": "x", "format": "share"}, **described})
    metric = registry.metric("test/capitals")
    assert (metric.heading, metric.number(0.125), metric.sign) == ("capitals [%]", "12.5", -1)
    assert registry.metric("test/bleu").label == "BLEU"
    assert not {"a", "b", "c"} & registry.METRICS.keys()


def test_a_metric_names_its_split() -> None:
    names = ("test/bleu", "val/bleu", "test/mscoco/bleu", "bleu", "train/loss_epoch")
    metrics = [registry.metric(name) for name in names]
    assert [metric.split for metric in metrics] == ["test", "val", "test/mscoco", "val", "val"]
    titles = ["BLEU", "BLEU (val)", "BLEU (mscoco)", "BLEU (val)", "training loss"]
    assert [metric.title for metric in metrics] == titles
    signs = [registry.metric(name).sign for name in ("bleu", "wer", "attention/entropy")]
    assert signs == [1, -1, 1]


def test_signatures_name_the_settings_of_metrics_with_several_definitions() -> None:
    texts = Texts(predictions_of(("a", "a"), ("b", "b")))
    signatures = registry.signatures([*registry.default_metrics(), "conala_bleu", "parses"], texts)
    assert list(signatures) == ["bleu", "chrf", "conala_bleu"]
    assert signatures["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert signatures["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert "nrefs:1|case:mixed|eff:no|tok:conala|smooth:none" in signatures["conala_bleu"]
    two, varying = (predictions_of(("a", "a", "b"), ("a", *others)) for others in (("b", "c"), ("b",)))
    assert "nrefs:2|" in registry.signatures(["conala_bleu"], Texts(two))["conala_bleu"]
    signature = registry.signatures(["bleu"], Texts(varying, bleu_tokenizer="char"))["bleu"]
    assert signature.startswith("nrefs:var|case:mixed|eff:no|tok:char|")


@pytest.mark.parametrize("name", ["blue", "loss"])
def test_unknown_text_metric_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UserError, match=f"Unknown text metric '{name}'. Choose from: bleu, chrf"):
        score(Texts(predictions_of(("a", "a"))), [name])


@pytest.mark.parametrize(("name", "value"), [("CharErrorRate", 1 / 8), ("TranslationEditRate", 1 / 4)])
def test_classes_of_torchmetrics_are_text_metrics(name: str, value: float) -> None:
    """One letter of eight, spaces included, and one word of four differ."""
    metric = f"torchmetrics.text.{name}"
    texts = Texts(predictions_of(("a b cc", "a b dc"), ("de", "de")))
    assert score(texts, [metric]).values == {metric: pytest.approx(value)}
    with pytest.raises(UserError, match="no such metric of texts"):
        registry.function("torchmetrics.text.Nothing")


def test_class_of_torchmetrics_with_several_scores_needs_the_name_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Scores:
        def __call__(self, hypotheses: list[str], references: list[str]) -> dict[str, torch.Tensor]:
            return {"precision": torch.tensor(0.5), "recall": torch.tensor(0.25)}

    monkeypatch.setattr(torchmetrics.text, "Scores", Scores, raising=False)
    texts = Texts(predictions_of(("a", "a")))
    assert registry.function("torchmetrics.text.Scores.recall")(texts) == 0.25
    with pytest.raises(UserError, match=r"several scores: write torchmetrics.text.Scores.KEY with .* recall"):
        registry.function("torchmetrics.text.Scores")(texts)


def test_objects_are_no_names_of_metrics() -> None:
    with pytest.raises(UserError, match="not the name of a metric, such as"):
        registry.function(torchmetrics.text.CharErrorRate())
