"""What the explorer is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnlab.analysis.collect import collect
from attnlab.report import explorer
from attnlab.report.explorer import Output, Sentence, as_plain, disagreement, gather
from studies import make_run

TEXTS = [("a b c", "x y"), ("d e", "z")]


def test_each_variant_shows_the_first_seed_that_kept_weights(tmp_path: Path) -> None:
    first = make_run(tmp_path / "study", "dot", 0, TEXTS)
    first.attention.unlink()
    make_run(tmp_path / "study", "dot", 1, TEXTS, hypotheses=["x y", "q"])
    make_run(tmp_path / "study", "none", 0, TEXTS, hypotheses=["x y", "z"], weights=False)
    runs, (one, other) = gather(collect([tmp_path]))
    assert sorted(runs) == [("dot", 1), ("none", 0)]
    dot = runs.index(("dot", 1))
    assert (one.source, one.reference, one.disagreement, one.score) == ("a b c", "x y", 0, 100)
    ours, theirs = other.outputs[dot], other.outputs[1 - dot]
    assert ours is not None
    assert theirs is not None
    assert (ours.text, ours.exact, ours.score) == ("q", False, 0)
    assert ours.tokens == ["q", "<eos>"]
    assert ours.source == ["d", "e"]
    assert (theirs.exact, theirs.weights) == (True, None)
    assert other.disagreement == 100


def test_other_data_stand_in_rows_of_their_own(tmp_path: Path) -> None:
    make_run(tmp_path / "study", "dot", 0, [("a", "x")])
    make_run(tmp_path / "study", "none", 0, [("b", "x")])
    _, sentences = gather(collect([tmp_path]))
    assert [sentence.source for sentence in sentences] == ["a", "b"]
    assert all(None in sentence.outputs for sentence in sentences)


def test_disagreement_is_the_mean_over_pairs() -> None:
    assert disagreement(["abcdef"]) is None
    assert disagreement(["abcdef", "abcdef"]) == 0
    # Of three pairs one agrees wholly, and two not at all
    assert disagreement(["aaaaaa", "aaaaaa", "bbbbbb"]) == pytest.approx(200 / 3)
    assert disagreement(["abc d", "abd"]) == pytest.approx(disagreement(["abd", "abc d"]))


def test_the_last_sentences_are_left_out_of_a_page_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output("x", ["x", "<eos>"], ["a"], "A" * 1000)
    sentences = [Sentence("a", None, [output])] * 5
    monkeypatch.setattr(explorer, "LARGEST", 3600)
    plain = as_plain([], sentences, "score")
    assert (len(plain["sentences"]), plain["left_out"]) == (3, 2)
    assert len(json.dumps(plain["sentences"])) < 3600


def test_source_tokens_are_told_once_unless_they_differ() -> None:
    outputs = [Output("x", ["x"], source, None) for source in (["ab"], ["ab"], ["a", "b"])]
    (plain,) = as_plain([], [Sentence("ab", None, [None, *outputs])], "score")["sentences"]
    assert plain["tokens"] == ["ab"]
    assert [None if output is None else output.get("source") for output in plain["outputs"]] == [
        None,
        None,
        None,
        ["a", "b"],
    ]
