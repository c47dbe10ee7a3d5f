from __future__ import annotations

import json
import logging
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.errors import UserError
from attnlab.metrics.scores import (
    EVERY,
    SCORES,
    LengthScores,
    Sample,
    Samples,
    TokenScores,
    by_length,
    score,
    signatures,
)

SAMPLES = st.builds(
    Sample, st.integers(0, 9), st.text(), st.text(), st.text(), st.lists(st.text(), max_size=2).map(tuple)
)


def samples_of(*pairs: tuple[str, str]) -> list[Sample]:
    """(hypothesis, reference) pairs as samples."""
    return [Sample(index, "", reference, hypothesis) for index, (hypothesis, reference) in enumerate(pairs)]


def test_token_scores_by_hand() -> None:
    scores = TokenScores()
    # Odds of 1 : 3 for label 0, then of 1 : 1
    scores.update(torch.tensor([[0.0, math.log(3)]]), torch.tensor([0]))
    scores.update(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    values = scores.compute()
    assert values["loss"].item() == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert values["perplexity"].item() == pytest.approx(math.sqrt(8))
    assert values["token_accuracy"].item() == 0.5


def test_token_scores_weigh_tokens_and_not_batches() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(13, 7), torch.randint(7, (13,))
    whole, parts = TokenScores(), TokenScores()
    whole.update(logits, labels)
    for part in (slice(0, 2), slice(2, 2), slice(2, 13)):
        parts.update(logits[part], labels[part])
    assert parts.compute() == {name: pytest.approx(value) for name, value in whole.compute().items()}


def test_token_scores_upcast_half_precision() -> None:
    scores = TokenScores()
    scores.update(torch.zeros(1, 1000, dtype=torch.bfloat16), torch.tensor([3]))
    assert scores.compute()["loss"].item() == pytest.approx(math.log(1000), rel=1e-6)


def test_nothing_seen_is_no_crash_and_no_warning() -> None:
    assert all(value.isnan() for value in TokenScores().compute().values())
    assert Samples().compute() == []


def test_samples_are_ordered_and_unique() -> None:
    gathered = Samples()
    first, second = Sample(0, "a", "b\n\u2028", "\ud800"), Sample(5, "ख़", "", '"')
    gathered.update([second])
    gathered.update([])
    gathered.update([first, second])
    assert gathered.compute() == [first, second]
    gathered.reset()
    assert gathered.compute() == []


@settings(max_examples=25, deadline=None)
@given(st.lists(SAMPLES, unique_by=lambda sample: sample.index))
def test_any_text_comes_back_as_it_was(samples: list[Sample]) -> None:
    gathered = Samples()
    gathered.update(samples)
    assert gathered.compute() == sorted(samples)


SHARES = [
    [Sample(1, "a", "b", "ü\n"), Sample(3, "c", "d", "e")],
    [Sample(0, "f", "g" * 99, ""), Sample(1, "a", "b", "ü\n")],
]
LOGITS, LABELS = torch.arange(15.0).reshape(5, 3).sin(), torch.tensor([0, 1, 2, 1, 0])


def process(rank: int, folder: str) -> None:
    """One of two processes, which hold unequal numbers of tokens, updates and bytes."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", world_size=2, rank=rank)
    tokens, none, one_sided, uneven = TokenScores(), Samples(), Samples(), Samples()
    mine = slice(0, 4) if rank == 0 else slice(4, 5)
    tokens.update(LOGITS[mine], LABELS[mine])
    if rank == 1:
        one_sided.update(SHARES[1])
    for share in [SHARES[1]] if rank == 1 else [[sample] for sample in SHARES[0]]:
        uneven.update(share)
    result = [
        {name: value.item() for name, value in tokens.compute().items()},
        none.compute(),
        one_sided.compute(),
        uneven.compute(),
    ]
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(process, (str(tmp_path),), nprocs=2)
    alone = TokenScores()
    alone.update(LOGITS, LABELS)
    expected = {name: pytest.approx(value.item(), rel=1e-12) for name, value in alone.compute().items()}
    for rank in range(2):
        tokens, none, one_sided, uneven = json.loads((tmp_path / f"{rank}.json").read_text())
        assert tokens == expected
        assert none == []
        assert one_sided == [[*sample[:-1], []] for sample in SHARES[1]]
        assert uneven == [[*sample[:-1], []] for sample in (SHARES[1][0], *SHARES[0])]


def test_exact_match_compares_tokens() -> None:
    samples = samples_of(("a  b", "a b"), ("a", "A"), ("", "a"), ("a b", "b a"))
    assert score(samples, ["exact_match"]) == {"exact_match": 0.25}


def test_edit_distance_counts_per_reference_token() -> None:
    # A substitution, a deletion and an insertion against 3 + 2 + 1 tokens, then 2 tokens all missing
    samples = samples_of(("a x c", "a b c"), ("a", "a b"), ("a a", "a"), ("", "a b"))
    assert score(samples, ["edit_distance"]) == {"edit_distance": pytest.approx(5 / 8)}


def test_perfect_and_empty_outputs() -> None:
    text = "the cat sat on the mat ."
    perfect = {"exact_match": 1, "edit_distance": 0, "bleu": pytest.approx(100), "chrf": pytest.approx(100)}
    assert score(samples_of((text, text))) == perfect
    assert score(samples_of(("", text), ("", text))) == {
        "exact_match": 0,
        "edit_distance": 1,
        "bleu": 0,
        "chrf": 0,
    }


def test_bleu_by_hand() -> None:
    # As in any BLEU-4: 4/5, 3/4, 2/3, 1/2 of the n-grams agree; "." is a token of its own
    samples = samples_of(("a b c d.", "a b c d!"))
    expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)
    assert score(samples, ["bleu"])["bleu"] == pytest.approx(expected)


def test_bleu_keeps_case() -> None:
    assert score(samples_of(("The cat sat on it", "the cat sat on it")), ["bleu"])["bleu"] < 100


def test_tokenised_text_raises_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        score(samples_of(*[("a b c .", "a b c .")] * 150))
    assert not caplog.records


def test_scores_of_code() -> None:
    samples = samples_of(("x = 'abc'", 'x = "abc"'), ("x = (", "x = 1"))
    values = score(samples, ["conala_bleu", "parses"])
    # x = ` abc ` either way; then 7 of 8 tokens, 5 of 6 pairs, 3 of 4 triples and 2 of 2 quadruples agree
    precisions = [7 / 8, 5 / 6, 3 / 4, 2 / 2]
    assert values["conala_bleu"] == pytest.approx(100 * math.prod(precisions) ** (1 / 4))
    assert values["parses"] == 0.5


def test_scores_by_length_by_hand() -> None:
    samples = samples_of(("a", "a"), ("b", "c"), ("d", "d"), ("e", "e"))
    assert by_length(samples, [7, 3, 4, 3], ["exact_match"]) == [
        LengthScores(3, 3, 2, {"exact_match": 0.5}),
        LengthScores(4, 4, 1, {"exact_match": 1.0}),
        LengthScores(7, 7, 1, {"exact_match": 1.0}),
    ]
    assert [row[:3] for row in by_length(samples, [1, 5, 6, 9], ["exact_match"], bins=2)] == [
        (1, 5, 2),
        (6, 9, 2),
    ]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.integers(1, 12))
def test_ranges_of_lengths_hold_every_sample_once(lengths: list[int], bins: int) -> None:
    rows = by_length(samples_of(*[("a", "a")] * len(lengths)), lengths, ["exact_match"], bins=bins)
    assert [row.sentences for row in rows] == [
        sum(row.shortest <= length <= row.longest for length in lengths) for row in rows
    ]
    assert sum(row.sentences for row in rows) == len(lengths)
    assert len(rows) <= bins
    assert all(one.longest < two.shortest for one, two in pairwise(rows))
    assert (rows[0].shortest, rows[-1].longest) == (min(lengths), max(lengths))
    widths = {row.longest - row.shortest for row in rows[:-1]}
    assert len(widths) <= 1


def test_signatures_name_the_scores_with_choices() -> None:
    found = signatures([*EVERY, "conala_bleu", "parses"])
    assert list(found) == ["bleu", "chrf", "conala_bleu"]
    assert found["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert found["chrf"].startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert "tok:conala|smooth:none" in found["conala_bleu"]


@pytest.mark.parametrize("name", SCORES)
def test_no_samples_is_said_clearly(name: str) -> None:
    with pytest.raises(ValueError, match="no samples to score"):
        score([], [name])


def test_an_unknown_score_lists_the_known() -> None:
    with pytest.raises(UserError, match="unknown score 'blue': choose from exact_match"):
        score(samples_of(("a", "a")), ["blue"])


def test_code_matches_by_its_official_tokens() -> None:
    samples = samples_of(("f( 'a' )", 'f("a")'), ("f(a)", 'f("a")'))
    assert SCORES["conala_exact_match"](samples) == 0.5
    assert SCORES["exact_match"](samples) == 0.0


def test_slot_accuracy_by_hand() -> None:
    accuracy = SCORES["slot_accuracy"]
    reference = "sorted(names, key=lambda x: x['age'] + x.age, reverse=my_list[0])"
    quoted = ("names", "age", "my_list[0]", "unused", "")
    right = Sample(0, "", reference, 'my_list [ 0 ]; names; "age"; age; age', quoted)
    assert accuracy([right]) == 1.0
    assert accuracy([right._replace(hypothesis="age(names)(names)")]) == 2 / 4
    assert accuracy([right, right._replace(hypothesis="")]) == 4 / 8
    assert accuracy([right._replace(quoted=("unused",), hypothesis="")]) == 1.0
