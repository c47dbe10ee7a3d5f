"""Data of the attention explorer."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnlab.files.predictions import Prediction
from attnlab.report import explorer
from attnlab.report.collect import collect
from attnlab.report.explorer import Sentence, explorer_json, gather_sentences, score_of
from studies import make_run

TEXTS = [("a b c", "x y"), ("d e", "z")]


def test_first_seed_with_weights_represents_a_variant(tmp_path: Path) -> None:
    first = make_run(tmp_path / "study", "dot", 0, TEXTS)
    first.attention.unlink()
    make_run(tmp_path / "study", "dot", 1, TEXTS, hypotheses=["x y", "q"])
    make_run(tmp_path / "study", "none", 0, TEXTS, hypotheses=["x y", "z"], weights=False)
    runs, (one, other) = gather_sentences(collect([tmp_path]))
    assert sorted(runs) == [("dot", 1), ("none", 0)]
    dot = runs.index(("dot", 1))
    assert (one.source, one.references, one.score) == ("a b c", ("x y",), 100)
    ours, theirs = other.outputs[dot], other.outputs[1 - dot]
    assert (ours.hypothesis, score_of(ours)) == ("q", 0)
    assert ours.tokens == ["q", "<eos>"]
    assert ours.source_tokens == ["d", "e"]
    assert ((theirs.hypothesis,), theirs.weights) == (theirs.references, None)


def test_different_sources_are_separate_sentences(tmp_path: Path) -> None:
    make_run(tmp_path / "study", "dot", 0, [("a", "x")])
    make_run(tmp_path / "study", "none", 0, [("b", "x")])
    _, sentences = gather_sentences(collect([tmp_path]))
    assert [sentence.source for sentence in sentences] == ["a", "b"]
    assert all(None in sentence.outputs for sentence in sentences)


@pytest.mark.parametrize(
    "line", ["{", "{}", "[]", '{"tokens": ["x"], "source_tokens": ["a"], "weights": "AA=="}']
)
def test_unreadable_attention_file_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    damaged = make_run(tmp_path / "study", "dot", 0, TEXTS)
    damaged.attention.write_text(f"{line}\n")
    make_run(tmp_path / "study", "dot", 1, TEXTS)
    runs, sentences = gather_sentences(collect([tmp_path]))
    assert runs == [("dot", 1)]
    assert len(sentences) == 2
    assert "the attention explorer omits" in caplog.text


def output(source_tokens: list[str], weights: np.ndarray | None = None) -> Prediction:
    return Prediction(
        index=0,
        source="".join(source_tokens),
        hypothesis="x",
        source_tokens=source_tokens,
        tokens=["x", "<eos>"],
        weights=weights,
    )


def test_last_sentences_are_omitted_from_a_large_page(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [Sentence("a", "", [output(["a"], np.ones((2, 375)))])] * 5
    monkeypatch.setattr(explorer, "MAX_CHARACTERS", 3600)
    plain = explorer_json([], sentences, "score")
    assert (len(plain["sentences"]), plain["left_out"]) == (3, 2)
    assert len(json.dumps(plain["sentences"])) < 3600


def test_source_tokens_are_stored_once_unless_they_differ() -> None:
    outputs = [output(tokens) for tokens in (["ab"], ["ab"], ["a", "b"])]
    (plain,) = explorer_json([], [Sentence("ab", "", [None, *outputs])], "score")["sentences"]
    assert plain["tokens"] == ["ab"]
    assert plain["outputs"][0] is None
    assert [row.get("source") for row in plain["outputs"][1:]] == [None, None, ["a", "b"]]
