"""Statistical comparison of variants."""

from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.metrics import registry
from attnlab.metrics.texts import Texts
from attnlab.report.collect import collect
from attnlab.report.comparison import Comparison, by_question, compare, compare_pair
from attnlab.report.resampling import interval_over_sentences
from attnlab.report.statistics import holm
from attnlab.report.study import Study
from attnlab.report.study_tables import build_tables, comparisons_table, scores_table
from attnlab.report.variants import common_name
from predictions import predictions_of
from run_files import Sentence, study, with_code, with_data, with_result, write_run

T_2 = 4.302652729911275  # 97.5 % quantile of Student's t with 2 degrees of freedom


def test_paired_t_test_of_three_seeds() -> None:
    (result,) = compare(study({"additive": [11.0, 22.0, 33.0], "none": [10.0, 20.0, 30.0]}))
    # Differences 1, 2, 3: mean 2, standard deviation 1, t = 2 √3
    assert (result.variant, result.reference, result.over, result.seeds) == ("additive", "none", "seeds", 3)
    assert result.difference == 2
    assert result.effect_size == pytest.approx(2)
    assert result.low == pytest.approx(2 - T_2 / sqrt(3))
    assert result.high == pytest.approx(2 + T_2 / sqrt(3))
    # P(|t| > x) = 1 - x / √(2 + x²) for 2 degrees
    assert result.p == pytest.approx(1 - 2 * sqrt(3) / sqrt(14))
    assert result.p_corrected == result.p
    assert result.summary == (
        "No significant difference between additive and none: 2.0 BLEU [-0.5, 4.5], p = 0.074, 3 seeds."
    )


def test_all_pairs_and_metrics_are_one_family() -> None:
    draw = np.random.default_rng(1)
    metrics = ("test/bleu", "test/chrf")
    result = study({name: [0.0] * 5 for name in ("none", "dot", "general", "concat")})
    runs = [replace(run, scores={metric: draw.normal(30, 1) for metric in metrics}) for run in result.runs]
    comparisons = compare(replace(result, runs=runs, selected_metrics=metrics))
    assert len(comparisons) == 6
    assert {comparison.family_size for comparison in comparisons} == {6}
    assert [comparison.p_corrected for comparison in comparisons] == holm(
        [comparison.p for comparison in comparisons if comparison.p is not None]
    )


def test_pair_is_compared_without_the_other_variants() -> None:
    three = study({"additive": [11.0, 22.0, 33.0], "none": [10.0, 20.0, 30.0], "dot": [1.0, 2.0, 4.0]})
    (result,) = compare_pair(three, "dot", "additive")
    assert (result.variant, result.reference, result.family_size) == ("dot", "additive", 1)
    assert compare_pair(three, "dot", "general") == []


def test_single_seed_is_not_tested() -> None:
    (result,) = compare(study({"additive": [14.1], "none": [10.0]}))
    assert (result.p, result.low, result.effect_size) == (None, None, None)
    assert (
        result.summary
        == "additive beats none by 4.1 BLEU in one seed: a test across seeds needs at least two."
    )


def test_only_shared_seeds_are_paired() -> None:
    result = study({"additive": [11.0, 22.0, 33.0, 99.0], "none": [10.0, 20.0, 30.0]})
    assert compare(result)[0].seeds == 3
    assert compare(result)[0].difference == 2
    apart = replace(result, runs=[run for run in result.runs if (run.variant == "none") == (run.seed < 2)])
    assert compare(apart)[0].summary == ("additive and none have no seed with BLEU in common: no comparison.")


def test_metric_missing_in_a_variant_is_not_compared() -> None:
    assert compare(study({"additive": [11.0, 22.0], "none": [float("nan"), float("nan")]})) == []


def test_seeds_without_a_finite_score_are_left_out_and_counted() -> None:
    (result,) = compare(study({"additive": [11.0, float("nan"), 35.0], "none": [10.0, 20.0, 30.0]}))
    assert (result.seeds, result.left_out, result.difference) == (2, 1, 3.0)
    assert "2 seeds (1 left out: a score is missing or not finite)" in result.summary


def test_differences_that_vary_by_the_rounding_of_scores_are_not_tested() -> None:
    """Runs store scores that were rounded to fp32."""
    dot, none = (
        [float(np.float32(score)) for score in scores] for scores in ((29 + 1 / 6, 30), (97.5, 98 + 1 / 3))
    )
    (result,) = compare(study({"dot": dot, "none": none}, "test/wer"))
    assert np.ptp(np.subtract(dot, none)) > 1e-6
    assert (result.p, result.effect_size) == (None, None)


def test_differences_without_variance_are_not_tested() -> None:
    (result,) = compare(study({"additive": [1.0, 1.0], "none": [0.0, 0.0]}, "test/exact_match"))
    assert result.p is None
    assert result.summary == (
        "additive beats none by 100.0 points of exact match in each of 2 seeds: "
        "without variance there is no test."
    )
    (same,) = compare(study({"additive": [1.0, 0.5], "none": [1.0, 0.5]}, "test/exact_match"))
    assert same.summary == (
        "additive and none have the same exact match in each of 2 seeds: without variance there is no test."
    )


@pytest.mark.parametrize(
    ("metric", "difference", "start"),
    [
        ("test/bleu", 4.1, "additive beats none by 4.1 BLEU [3.2, 5.0]"),
        ("test/bleu", -4.1, "none beats additive by 4.1 BLEU [3.2, 5.0]"),
        ("test/exact_match", 0.041, "additive beats none by 4.1 points of exact match [3.2, 5.0]"),
        ("val/loss", -4.1, "additive beats none by 4.100 nats of loss (val) [3.200, 5.000]"),
        ("val/loss", 4.1, "none beats additive by 4.100 nats of loss (val) [3.200, 5.000]"),
        ("test/attention/coverage", 4.1, "additive exceeds none by 4.100 attention coverage [3.200, 5.000]"),
    ],
)
def test_summary_names_the_better_variant(metric: str, difference: float, start: str) -> None:
    low, high = sorted((difference * 3.2 / 4.1, difference * 5.0 / 4.1))
    result = Comparison(
        metric, "additive", "none", "seeds", 5, None, difference, low, high, 3.0, 0.002, 0.002, family_size=1
    )
    assert result.summary == f"{start}, p = 0.002, 5 seeds."


def test_summary_of_a_sentence_test_with_small_p_and_difference() -> None:
    result = Comparison(
        *("test/bleu", "additive", "none", "sentences", 2, 2000, 0.01, -0.01, 0.03, None, 1e-5, 1e-4, 9)
    )
    assert result.summary == (
        "additive beats none by less than 0.1 BLEU [0.0, 0.0], p < 0.001 (Holm, 9 tests), "
        "2,000 sentences, 2 seeds."
    )


def test_default_and_selected_references() -> None:
    def pairs(result: list[Comparison]) -> list[tuple[str, str]]:
        return [(comparison.variant, comparison.reference) for comparison in result]

    with_none = study({"none": [3.0], "dot": [2.0], "general": [1.0]})
    assert pairs(compare(with_none)) == [("dot", "none"), ("general", "none")]
    assert pairs(compare(with_none, reference="dot")) == [("none", "dot"), ("general", "dot")]
    assert pairs(compare(with_none, all_pairs=True)) == [
        ("dot", "general"),
        ("dot", "none"),
        ("general", "none"),
    ]
    without = study({"mean": [3.0], "dot": [2.0], "general": [1.0]})
    assert pairs(compare(without)) == [("mean", "dot"), ("mean", "general"), ("dot", "general")]
    named = study({"none · optimizer.lr=0.1": [3.0], "dot": [2.0], "general": [1.0]})
    assert {reference for _, reference in pairs(compare(named))} == {"none · optimizer.lr=0.1"}
    with pytest.raises(
        UserError, match=r"'additive' has no finished run. Choose the reference from none, dot"
    ):
        compare(with_none, reference="additive")


def test_sentence_test_uses_the_seeds_with_the_same_test_set(tmp_path: Path) -> None:
    def sentences(right: int, of: str = "s") -> list[Sentence]:
        return [(f"{of}{n}", f"{of}{n}", f"{of}{n}" if n < right else "wrong") for n in range(20)]

    for seed, (ours, theirs) in enumerate([(15, 5), (17, 6)]):
        write_run(tmp_path, "dot", seed, scores={"test/exact_match": ours / 20}, sentences=sentences(ours))
        write_run(
            tmp_path, "none", seed, scores={"test/exact_match": theirs / 20}, sentences=sentences(theirs)
        )
    write_run(tmp_path, "dot", 2, scores={"test/exact_match": 1.0}, sentences=sentences(20, "t"))
    write_run(tmp_path, "none", 2, scores={"test/exact_match": 0.0}, sentences=sentences(0, "t"))
    over_seeds, over_sentences = compare(collect([tmp_path]))
    assert (over_seeds.over, over_seeds.seeds) == ("seeds", 3)
    assert (over_sentences.over, over_sentences.seeds, over_sentences.sentences) == ("sentences", 2, 20)
    assert over_sentences.difference == pytest.approx((15 + 17 - 5 - 6) / 40)
    assert {over_seeds.family_size, over_sentences.family_size} == {2}  # one family of both questions
    # Sentences 5 to 16 differ, all in favour of dot: 2 of 2^12 assignments are as extreme
    assert over_sentences.p == pytest.approx(2 / 2**12)


def test_interval_of_a_difference_is_limited_to_possible_differences() -> None:
    (result,) = compare(study({"dot": [1.0, 0.4, 1.0], "none": [0.0, 0.2, 0.1]}, "test/exact_match"))
    assert result.high == 1  # unlimited 1.7
    assert result.low == pytest.approx(0.7 - T_2 * 0.43589 / sqrt(3), abs=1e-4)
    (loss,) = compare(study({"dot": [9.0, 1.0], "none": [1.0, 1.0]}, "test/loss"))
    assert loss.high == pytest.approx(4 + 12.7062 * 4, abs=1e-3)


def test_bleu_over_sentences_has_the_tokenizer_of_the_signature(tmp_path: Path) -> None:
    """A wrong character in each of 8 sentences; over words, all n-grams would be wrong."""
    reference = "我们今天去北京看长城"
    for variant, output in (("dot", reference), ("none", reference[:-1] + "狗")):
        sentences = [(f"s{n}", reference, output) for n in range(8)]
        run = write_run(tmp_path, variant, scores={"test/bleu": 90.0}, sentences=sentences)
        texts = Texts(predictions_of(("a", "a")), bleu_tokenizer="zh")
        with_result(run, signatures=registry.signatures(["bleu"], texts))
    collected = collect([tmp_path])
    _, over_sentences = compare(collected)
    expected = 100 * (1 - (9 / 10 * 8 / 9 * 7 / 8 * 6 / 7) ** (1 / 4))
    assert over_sentences.difference == pytest.approx(expected)
    assert scores_table(collected).notes[2:] == []

    words = replace(collected.runs[0], signatures={})
    mixed = replace(collected, runs=[words, *collected.runs[1:]])
    assert compare(mixed) == []
    assert scores_table(mixed).notes[2:] == [
        "BLEU is not comparable: the runs have different tokenizers (13a, zh)."
    ]


@pytest.mark.parametrize(
    ("metric", "tokenizer", "difference"),
    [
        ("exact_match", "subwords", -0.5),
        ("wer", "characters", 50.0),
        ("per", "whitespace", 4 / (4 * 3 + 4 * 2)),
        ("ser", "whitespace", 4 / (4 * 3 + 4 * 2)),
        ("cer", "characters", 4 / (4 * 6 + 4 * 4)),
        ("edit_distance", "characters", 4 / (4 * 6 + 4 * 4)),
        ("cer", "subwords", None),
    ],
)
def test_scores_of_words_are_tested_over_inputs(
    metric: str, tokenizer: str, difference: float | None, tmp_path: Path
) -> None:
    texts = [("word", "a b cd" if n % 2 else "a b ", n) for n in range(8)]
    for variant, wrong in (("dot", True), ("none", False)):
        sentences = [
            (f"{source}{n}", reference, "a b xd" if wrong and n % 2 else reference)
            for source, reference, n in texts
        ]
        settings = {"_target_": f"attnlab.data.tokenization.train.{tokenizer}"}
        scores = {f"test/{metric}": float(wrong)}
        write_run(
            tmp_path, variant, scores=scores, sentences=sentences, tokenizer={}, target_tokenizer=settings
        )
    compared = compare(replace(collect([tmp_path]), selected_metrics=(f"test/{metric}",)))
    over = {each.over: each for each in compared}
    assert ("sentences" in over) == (difference is not None)
    if difference is not None:
        assert over["sentences"].difference == pytest.approx(difference)
        assert over["sentences"].noun == "inputs"


@pytest.mark.parametrize(
    ("source", "heading"),
    [
        ("two words", "Across test sentences"),
        ("word", "Across test inputs"),
        ("w o r d", "Across test inputs"),
        ("17 25 3", "Across test inputs"),
    ],
)
def test_words_and_sequences_of_symbols_are_inputs(tmp_path: Path, source: str, heading: str) -> None:
    for variant, right in (("dot", "x"), ("none", "y")):
        sentences = [(f"{n} {source}", "x", right) for n in range(8)]
        write_run(tmp_path, variant, scores={"test/exact_match": float(right == "x")}, sentences=sentences)
    questions = by_question(compare(collect([tmp_path])))
    assert list(questions) == ["Across training runs", heading]
    assert f"8 {heading.split()[-1]}, 1 seed." in questions[heading][0].summary


def test_validation_metrics_are_not_tested_on_test_sentences(tmp_path: Path) -> None:
    for variant in ("dot", "none"):
        sentences = [("a", "a", "a"), ("b", "b", variant)]
        write_run(tmp_path, variant, scores={"val/exact_match": 0.5}, sentences=sentences)
    assert [result.over for result in compare(collect([tmp_path]))] == ["seeds"]


def test_a_difference_that_is_not_significant_has_the_sign_of_the_table() -> None:
    result = study({"additive": [10.0, 20.0, 30.0], "none": [11.0, 22.0, 33.0]})
    (compared,) = compare(result)
    assert compared.summary == (
        "No significant difference between additive and none: -2.0 BLEU [-4.5, 0.5], p = 0.074, 3 seeds."
    )
    (row,) = comparisons_table([compared], result).text[["difference", "95 % CI low"]].to_numpy()
    assert [*row] == ["-2.0", "-4.5"]


def test_variants_with_different_test_data_are_not_compared(tmp_path: Path) -> None:
    data = {"copy": ("c", 10.0), "copy_dot": ("c", 20.0), "sort": ("s", 30.0)}
    for variant, (digest, score) in data.items():
        for seed in range(2):
            run = write_run(
                *(tmp_path, variant, seed),
                scores={"test/bleu": score + 2 * seed * (digest == "s")},
                data={"task": variant.partition("_")[0]},
                decoder={"size": int(score)},
            )
            with_data(run, train=variant, test=digest)
    found = collect([tmp_path])
    assert [(each.variant, each.reference) for each in compare(found)] == [("copy_dot", "copy")]
    assert compare(found, reference="sort") == []
    *scores, _, _ = build_tables(found, [])
    titles = {table.title: [*table.text.index] for table in scores}
    assert titles == {
        "Final scores · data.task=copy": ["copy_dot", "copy"],
        "Final scores · data.task=sort": ["sort"],
    }
    assert [note for table in scores for note in table.notes[1:]] == [
        "Not compared with each other, since their test data differ: copy_dot, copy; sort."
    ]


def test_each_task_has_its_own_main_score(tmp_path: Path) -> None:
    for variant, score in (("none", 20.0), ("dot", 30.0)):
        scores = {"test/bleu": score, "test/exact_match": 0.0}
        with_data(write_run(tmp_path, variant, scores=scores, name="mt"), test="m")
        with_data(write_run(tmp_path, variant, scores={"test/wer": score}, name="g2p"), test="g")
    found = collect([tmp_path])
    by_data = {part.data: (part.metrics, part.variants) for part in found.parts}
    assert by_data == {
        "name=g2p": (["test/wer"], ["none · name=g2p", "dot · name=g2p"]),  # lower is better
        "name=mt": (["test/bleu", "test/exact_match"], ["dot · name=mt", "none · name=mt"]),
    }
    assert found.models == {}  # no average of different scores
    assert {(each.metric, each.reference) for each in compare(found)} == {
        ("test/wer", "none · name=g2p"),
        ("test/bleu", "none · name=mt"),
        ("test/exact_match", "none · name=mt"),
    }


def languages(folder: Path, differences: dict[str, tuple[float, ...]]) -> Study:
    """Runs of "none" and "dot" on languages: WER 50 of "none", and lower ones of "dot"."""
    for lang, by_seed in differences.items():
        for seed, difference in enumerate(by_seed):
            for model, score in (("none", 50.0), ("dot", 50.0 - difference)):
                settings = {"attention": {"_target_": model}, "data": {"train": lang}, "lang": lang}
                run = write_run(folder, f"{model}-{lang}", seed, scores={"test/wer": score}, **settings)
                with_data(run, test=lang)
    return collect([folder])


def test_models_are_paired_over_languages_and_languages_are_not_compared(tmp_path: Path) -> None:
    """Means over seeds are 1, 2 and 6: mean 3, s = √7, t = 3 / √(7 / 3)."""
    found = languages(tmp_path, {"ady": (0.0, 2.0), "gre": (1.0, 3.0), "hun": (6.0, 6.0)})
    compared = compare(found)
    assert [(each.over, each.variant, each.reference) for each in compared] == [
        ("data", "dot", "none"),
        *(("seeds", f"dot-{lang}", f"none-{lang}") for lang in ("ady", "gre", "hun")),
    ]
    result = compared[0]
    half = T_2 * sqrt(7 / 3)
    assert (result.difference, result.data_sets, result.seeds) == (-3, 3, 2)
    assert (result.low, result.high) == (pytest.approx(-3 - half), pytest.approx(-3 + half))
    assert result.p == pytest.approx(1 - 3 / sqrt(7 / 3) / sqrt(2 + 9 / (7 / 3)))
    assert result.summary.startswith(
        "No significant difference between dot and none: -3.0 points of WER [-9.6, 3.6], p = "
    )
    assert result.summary.endswith("3 data sets, 2 seeds.")
    assert [*by_question(compared)] == ["Across data sets", "Across training runs"]
    assert compare(found, reference="dot")[0].difference == 3
    row = comparisons_table(compared, found).text.reset_index().iloc[0]
    assert row[["across", "data sets", "difference"]].tolist() == ["data sets", "3", "-3.0"]


@pytest.mark.parametrize(
    ("variants", "name"),
    [
        (["dot-length5", "dot-length10 · seeds"], "dot"),
        (["ice-hard_order_1", "german-ridges-hard_order_1"], "hard_order_1"),
        (["ady", "gre"], ""),
        (["dot-ady", "dot-gre"], "dot"),
    ],
)
def test_names_of_a_model_on_several_data_sets_share_their_beginning_or_end(
    variants: list[str], name: str
) -> None:
    assert common_name(variants) == name


def test_runs_before_and_after_an_edit_of_a_class_are_two_variants(tmp_path: Path) -> None:
    for seed, digest in enumerate(("a" * 64, "a" * 64, "b" * 64)):
        with_code(write_run(tmp_path, "gaussian", seed), mech_Gaussian=digest)
        write_run(tmp_path, "none", seed)
    found = collect([tmp_path])
    seeds = {variant: [run.seed for run in runs] for variant, runs in found.by_variant().items()}
    old, new = "gaussian · Gaussian code aaaaaaaa", "gaussian · Gaussian code bbbbbbbb"
    assert seeds == {old: [0, 1], new: [2], "none": [0, 1, 2]}
    assert {(each.variant, each.reference) for each in compare(found, all_pairs=True)} == {
        (old, "none"),
        (new, "none"),
    }
    assert build_tables(found, [])[0].notes[1:] == [
        f"Not compared with each other, since the code of mech.Gaussian differs: {old}; {new}."
    ]


def test_runs_before_and_after_a_change_of_their_data_are_two_variants(tmp_path: Path) -> None:
    for seed, digest in enumerate(("a" * 64, "a" * 64, "b" * 64)):
        with_data(write_run(tmp_path, "dot", seed), train="t", test=digest)
    found = collect([tmp_path])
    seeds = {variant: [run.seed for run in runs] for variant, runs in found.by_variant().items()}
    assert seeds == {"dot · test data aaaaaaaa": [0, 1], "dot · test data bbbbbbbb": [2]}
    assert found.models == {}  # no average of the old and the new data
    assert compare(found) == []


def test_equal_settings_on_other_data_are_no_duplicates(tmp_path: Path) -> None:
    for folder, digest in (("old", "a"), ("new", "b"), ("copy", "b")):
        with_data(write_run(tmp_path / folder, "dot"), train="t", test=digest * 64)
    found = collect([tmp_path])
    assert {*found.by_variant()} == {"dot · test data aaaaaaaa", "dot · test data bbbbbbbb"}
    assert [run.error for run in found.unfinished] == [f"duplicate of {found.finished[1].directory}"]


def test_code_that_differs_between_data_sets_is_no_model_of_several(tmp_path: Path) -> None:
    for lang, digest in (("aa", "1"), ("bb", "1"), ("cc", "2")):
        for variant, score in (("none", 1.0), ("mine", 2.0 + (lang == "bb"))):
            settings = {"attention": {"_target_": variant}, "data": {"train": lang}, "lang": lang}
            run = write_run(tmp_path, f"{variant}-{lang}", scores={"test/bleu": score}, **settings)
            with_data(run, test=lang)
            if variant == "mine":
                with_code(run, mech_Mine=digest * 64)
    found = collect([tmp_path])
    assert [*found.models] == ["none"]
    assert [each.over for each in compare(found)] == ["seeds"] * 3


def test_a_metric_of_some_data_sets_leaves_the_others_in_the_average(tmp_path: Path) -> None:
    for lang in ("aa", "bb", "cc"):
        for variant, score in (("none", 0.1), ("dot", 0.5)):
            scores = {"test/exact_match": score} | ({} if lang == "cc" else {"test/bleu": score})
            settings = {"attention": {"_target_": variant}, "data": {"train": lang}, "lang": lang}
            run = write_run(tmp_path, f"{variant}-{lang}", scores=scores, **settings)
            with_data(run, test=lang)
    found = replace(collect([tmp_path]), selected_metrics=("test/bleu", "test/exact_match"))
    assert {name: [*by_data] for name, by_data in found.models.items()} == {
        model: ["lang=aa", "lang=bb", "lang=cc"] for model in ("dot", "none")
    }
    assert [each.data_sets for each in compare(found) if each.over == "data"] == [2, 3]
    only = replace(found, selected_metrics=("test/bleu",))
    assert [part.metrics for part in only.parts] == [["test/bleu"], ["test/bleu"], []]


def test_files_of_data_with_similar_names_are_different(tmp_path: Path) -> None:
    for lang in ("c++", "c#", "x" * 200):
        with_data(write_run(tmp_path, "dot", data={"train": lang}, lang=lang), test=lang)
    suffixes = [part.suffix for part in collect([tmp_path]).parts]
    assert len({*suffixes}) == 3
    assert max(map(len, suffixes)) < 80


def test_words_that_are_wrong_are_one_hypothesis(tmp_path: Path) -> None:
    scores = {"val/wer": 40.0, "val/ser": 0.2, "val/exact_match": 0.6}
    for variant in ("dot", "none"):
        write_run(tmp_path, variant, scores=scores, sentences=[("w", "a", "a"), ("v", "b", "a")], split="val")
    assert collect([tmp_path]).metrics == ["val/wer"]


def test_data_that_follow_the_seed_are_compared_by_seed(tmp_path: Path) -> None:
    for variant in ("dot", "none"):
        for seed in range(2):
            run = write_run(tmp_path, variant, seed, data={"seed": seed})
            with_data(run, train=f"t{seed}", test=f"s{seed}")
    found = collect([tmp_path])
    assert {variant: len(runs) for variant, runs in found.by_variant().items()} == {"dot": 2, "none": 2}
    assert [each.seeds for each in compare(found)] == [2]
    outputs = [("3", "a", "a"), ("4", "b", "a"), ("5", "c", "c")]
    for seed in range(2):
        sentences = [(f"{source}{seed}", *texts) for source, *texts in outputs]
        write_run(tmp_path / "x", "x", seed, scores={"test/exact_match": 0.6}, sentences=sentences)
    assert interval_over_sentences(collect([tmp_path / "x"]).runs, "test/exact_match") is None
