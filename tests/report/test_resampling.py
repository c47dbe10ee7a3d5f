"""Significance tests over sentences."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, _bootstrap_resample
from scipy import stats

from attnlab.metrics import registry
from attnlab.metrics.registry import score as compute
from attnlab.metrics.sentence_counts import Counts, SentenceCounts
from attnlab.metrics.texts import WORDS as WORDS_13A
from attnlab.metrics.texts import Texts
from attnlab.report.collect import collect
from attnlab.report.resampling import (
    BATCH,
    PERMUTATIONS,
    SEED,
    interval_over_sentences,
    paired_test,
    score_interval,
)
from predictions import predictions_of
from run_files import write_run

COUNTS = {
    name: counts
    for name, metric in registry.METRICS.items()
    for tokenizer in ["whitespace" if metric.of_target_tokens else WORDS_13A]
    if (counts := metric.sentence_counts(tokenizer)) is not None
}
WORDS = [f"{letter}{number}" for letter in "abcdefgh" for number in range(8)]


def worse(texts: Sequence[str], chance: float, seed: int) -> list[str]:
    """Replace each word with probability `chance`."""
    draw = np.random.default_rng(seed)
    return [
        " ".join(WORDS[draw.integers(64)] if draw.random() < chance else word for word in text.split())
        for text in texts
    ]


def corpus(sentences: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, draw.integers(5, 15))) for _ in range(sentences)]


def count(score: SentenceCounts, hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
    return score.count(predictions_of(*zip(hypotheses, references, strict=True)))


@pytest.mark.parametrize("name", COUNTS)
@settings(max_examples=30)
@given(
    pairs=st.lists(
        st.tuples(st.text("ab (_\"'X", max_size=20), st.text("ab (_\"'X", min_size=1, max_size=20)),
        min_size=1,
        max_size=5,
    )
)
def test_scores_of_summed_counts_equal_the_corpus_metrics(name: str, pairs: list[tuple[str, str]]) -> None:
    score = COUNTS[name]
    predictions = [replace(each, annotations={"quoted": ["a", "b"]}) for each in predictions_of(*pairs)]
    counts = score.count(predictions)
    for value in compute(Texts(predictions), [name]).values.values():  # none for short references
        assert score.value(counts.sum(axis=0)) == pytest.approx(value)
    assert score.value(counts) == pytest.approx([float(score.value(row)) for row in counts])


def test_randomisation_is_exact_if_few_sentences_differ() -> None:
    references = corpus(12)
    ours = list(references)
    theirs = [*references[:7], *worse(references[7:], 0.3, seed=1)]
    metric, score = BLEU(force=True), COUNTS["bleu"]
    observed = metric.corpus_score(ours, [references]).score - metric.corpus_score(theirs, [references]).score
    as_large = 0
    for sides in product([False, True], repeat=5):
        swapped = [False] * 7 + list(sides)
        left = [b if swap else a for a, b, swap in zip(ours, theirs, swapped, strict=True)]
        right = [a if swap else b for a, b, swap in zip(ours, theirs, swapped, strict=True)]
        difference = (
            metric.corpus_score(left, [references]).score - metric.corpus_score(right, [references]).score
        )
        as_large += abs(difference) >= abs(observed) - 1e-9
    result = paired_test(score, [count(score, ours, references)], [count(score, theirs, references)])
    assert result.difference == pytest.approx(observed)
    assert result.p == pytest.approx(as_large / 2**5)


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_randomisation_equals_scipys_permutation_test(name: str) -> None:
    score, references = COUNTS[name], corpus(30)
    ours, theirs = (count(score, worse(references, 0.3, seed=seed), references) for seed in (1, 2))
    differ = (ours != theirs).any(axis=1)
    ours, theirs = ours[differ], theirs[differ]

    def difference(left: np.ndarray, right: np.ndarray, axis: int) -> np.ndarray:
        sums = [score.value(one @ ours + other @ theirs) for one, other in ((right, left), (left, right))]
        return sums[0] - sums[1]

    result = stats.permutation_test(
        (np.zeros(len(ours)), np.ones(len(ours))),
        difference,
        permutation_type="samples",
        n_resamples=PERMUTATIONS,
        batch=BATCH,
        vectorized=True,
        rng=np.random.default_rng(SEED),
    )
    assert paired_test(score, [ours], [theirs]).p == result.pvalue


def test_exact_match_of_one_seed_equals_mcnemars_exact_test() -> None:
    references = corpus(50)
    ours = ["wrong" if n in (0, 20, 21) else text for n, text in enumerate(references)]
    theirs = ["wrong" if n in (*range(1, 9), 20, 21) else text for n, text in enumerate(references)]
    score = COUNTS["exact_match"]
    result = paired_test(score, [count(score, ours, references)], [count(score, theirs, references)])
    assert result.difference == pytest.approx(7 / 50)
    assert result.p == pytest.approx(2 * (1 + 9) / 2**9)  # 9 sentences differ, 8 of them in favour of ours


@pytest.mark.parametrize("name", ["chrf", "exact_match"])
def test_equal_systems_have_p_value_one(name: str) -> None:
    references = corpus(30)
    counts = count(COUNTS[name], worse(references, 0.2, seed=1), references)
    assert paired_test(COUNTS[name], [counts], [counts]) == (0, 0, 0, 1)


def test_one_different_sentence_is_not_significant_unlike_in_sacrebleu() -> None:
    references = corpus(100)
    other = ["wrong", *references[1:]]
    score = COUNTS["bleu"]
    result = paired_test(score, [count(score, references, references)], [count(score, other, references)])
    assert result.difference > 0.1
    assert result.p == 1
    systems = [("ours", references), ("theirs", other)]
    _, results = PairedTest(systems, {"": BLEU(force=True)}, [references], "ar", 1000)()
    assert results["BLEU"][1].p_value == pytest.approx(1 / 1001)


@pytest.mark.parametrize("name", ["bleu", "exact_match"])
def test_identical_outputs_of_more_seeds_do_not_change_the_result(name: str) -> None:
    references = corpus(40)
    score = COUNTS[name]
    ours = count(score, references, references)
    theirs = count(score, worse(references, 0.02, seed=2), references)
    one_seed, three_seeds = paired_test(score, [ours], [theirs]), paired_test(score, [ours] * 3, [theirs] * 3)
    assert three_seeds == pytest.approx(one_seed)


def test_counts_that_are_not_finite_are_an_error() -> None:
    score, counts = COUNTS["exact_match"], np.array([[1.0, 1], [0, 1], [np.nan, 1]])
    for ours, theirs in ((counts, counts[:2].repeat(2, axis=0)[:3]), (counts[:2], counts[1:])):
        with pytest.raises(ValueError, match="finite"):
            paired_test(score, [ours], [theirs])
    with pytest.raises(ValueError, match="finite"):
        score_interval(score, [counts])


def test_interval_of_one_system_contains_its_score() -> None:
    references = corpus(150)
    counts = [count(COUNTS["bleu"], worse(references, 0.2, seed=seed), references) for seed in (1, 2)]
    low, high = score_interval(COUNTS["bleu"], counts)
    metric = BLEU(force=True)
    scores = [result.score for result in _bootstrap_resample(list(counts[0]), metric, 1000)[1]]
    # Two seeds are one corpus, whose interval is as wide as that of one seed
    assert high - low == pytest.approx(np.subtract(*np.percentile(scores, [97.5, 2.5])), rel=0.25)
    assert low < COUNTS["bleu"].value(np.sum(counts, axis=(0, 1))) < high


def test_a_run_without_outputs_leaves_the_interval_of_the_others(tmp_path: Path) -> None:
    sentences = [(f"{n}", "a b", "a b" if n % 3 else "b a") for n in range(12)]
    for seed in range(3):
        outputs = sentences if seed else None
        write_run(tmp_path, "dot", seed, scores={"test/exact_match": 0.5}, sentences=outputs)
    runs = collect([tmp_path]).by_variant()["dot"]
    interval = interval_over_sentences(runs, "test/exact_match")
    assert interval is not None
    assert interval == interval_over_sentences(runs[1:], "test/exact_match")
