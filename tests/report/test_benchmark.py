"""The benchmark: results files, aggregates and tests by hand, and the stored results."""

import csv
import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from attnlab.cli.benchmark import built_in
from attnlab.config.compose import compose_run
from attnlab.config.options import option_text, read_option
from attnlab.data.digests import describe as describe_data
from attnlab.errors import UserError
from attnlab.files.run_identity import identify
from attnlab.report.benchmark.rules import differences, other_conditions, violations
from attnlab.report.benchmark.scores import (
    FILES,
    REFERENCE,
    STORED,
    SUITE,
    Results,
    Score,
    download,
    join,
    read,
    stored_digest,
    write,
)
from attnlab.report.benchmark.tables import (
    compare,
    describe,
    draw,
    knowledge_table,
    ranking,
    scores_table,
    seed_differences,
)
from attnlab.training.build import build_corpus, build_network, build_vocabularies


def score(task: str, model: str, seed: int, right: str, split: str = "test") -> Score:
    """Return the score of a run whose inputs are right (1) or wrong (0)."""
    counts = np.array([[int(digit), 1] for digit in right], dtype=np.uint16)
    return Score(
        task=task,
        model=model,
        seed=seed,
        split=split,
        metric="exact_match",
        score=100 * right.count("1") / len(right),
        inputs=len(right),
        parameters=1000 + len(model),
        steps=7,
        seconds=1.5,
        memory=480 + seed,
        data=f"digest of {task}",
        train="of training",
        commit="c",
        cpu="a, CPU",
        versions="python=3",
        overrides="attention=dot",
        code="9f8e",
        built_in="",
        outputs=f"outputs of {right}",
        counts=counts,
    )


def two_tasks() -> Iterable[Score]:
    """Two tasks, one with a shifted test set, and two models; `dot` has a third seed on one task."""
    yield score("sort", "additive", 0, "1100")
    yield score("sort", "additive", 1, "1000")
    yield score("sort", "dot", 0, "1110")
    yield score("sort", "dot", 1, "1000")
    yield score("sort", "dot", 2, "1111")
    yield score("scan", "additive", 0, "11011")
    yield score("scan", "additive", 1, "11111")
    yield score("scan", "dot", 0, "10000")
    yield score("scan", "dot", 1, "11000")
    yield score("scan", "additive", 0, "100", "test/longer")
    yield score("scan", "additive", 1, "000", "test/longer")
    yield score("scan", "dot", 0, "111", "test/longer")
    yield score("scan", "dot", 1, "110", "test/longer")


def test_results_are_equal_after_writing_and_reading(tmp_path: Path) -> None:
    written = Results(two_tasks())
    write(written, tmp_path / "results.csv")
    again = read(tmp_path / "results.csv")
    assert sorted(map(repr, again)) == sorted(map(repr, written))
    for each in again:
        assert (each.counts == written.scores[each.cell][each.model][each.seed].counts).all()


def test_a_score_that_does_not_follow_from_its_counts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    write(Results(two_tasks()), path)
    path.write_text(path.read_text().replace(",75.0,", ",100.0,"))
    with pytest.raises(UserError, match=r"sort, dot, seed 0, test: the score is 100.0, its 4 inputs give 75"):
        read(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("missing", r"results\.npz: no such file"),
        ("short", "are not results of attnlab benchmark"),
        ("cut off", "are not results of attnlab benchmark"),
        ("empty", "are not results of attnlab benchmark"),
        ("flat", "with 2 axes"),
        ("fewer rows", "rows are missing"),
        ("no rows", "rows are missing"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, damage: str, message: str) -> None:
    path = tmp_path / "results.csv"
    write(Results(two_tasks()), path)
    counts, lines = path.with_suffix(".npz"), path.read_text().splitlines(keepends=True)
    if damage == "missing":
        counts.unlink()
    elif damage in ("cut off", "empty"):
        counts.write_bytes(counts.read_bytes()[: 50 if damage == "cut off" else 0])
    elif damage in ("fewer rows", "no rows"):
        path.write_text("".join(lines[:-1] if damage == "fewer rows" else lines[:1]))
    else:
        shape = (5, 4) if damage == "flat" else (5, 4, 2)
        np.savez(counts, **{"sort/test": np.zeros(shape, np.uint8)})
    with pytest.raises(UserError, match=message):
        read(path)


def test_aggregates_use_the_seeds_that_a_model_has_on_every_test_set() -> None:
    results = Results(two_tasks())
    assert results.seeds("dot") == [0, 1]
    table = ranking(results).values.astype(float)
    assert [*table.index] == ["additive", "dot"]
    improvement = table["improvement over additive [%], same"]
    # sort: 75 and 25 against 50 and 25, three of eight halves: (1 + 1 + 0 + 0.5) / 4; scan: never higher
    assert improvement["dot"] == pytest.approx(100 * (2.5 / 4 + 0) / 2)
    assert improvement["additive"] == 50
    assert table["improvement over additive [%], shifted"]["dot"] == 100
    # 75, 25, 20 and 40 without the lowest and the highest
    assert table["interquartile mean, same"]["dot"] == pytest.approx((25 + 40) / 2)


def test_a_model_that_lacks_a_test_set_is_not_ranked() -> None:
    results = Results([*two_tasks(), score("sort", "mean", 0, "1111")])
    assert [*ranking(results).text.index] == ["additive", "dot"]
    assert ranking(results).notes[1:] == ["Not ranked, for lack of some test sets: mean."]
    assert not ranking(results.only([("sort", "test")])).notes[1:]
    assert [*ranking(results.only([("sort", "test")])).text.index] == ["mean", "dot", "additive"]


def test_equal_probabilities_of_improvement_are_ordered_by_the_interquartile_mean() -> None:
    rows = (("additive", "1000"), ("cosine", "1100"), ("dot", "1111"), ("mean", "0000"))
    results = Results(score("sort", model, 0, right) for model, right in rows)
    assert [*ranking(results).text.index] == ["dot", "cosine", "additive", "mean"]


def test_missing_files_are_downloaded_and_checked(
    tmp_path: Path, served: tuple[Path, str], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, address = served
    for name in ("train.tsv", "wrong.tsv"):
        (folder / name).write_text(f"{name}\n")
    (mine := tmp_path / "mine").mkdir()
    (mine / "own.tsv").write_text("of another edition\n")
    digest = hashlib.sha256(b"train.tsv\n").hexdigest()
    with ZipFile(folder / "corpus.zip", "w") as archive:
        archive.writestr("corpus/train.json", "train.tsv\n")
        archive.writestr("corpus/other.json", "other\n")
    places = {name: Path(name).name for name in ("a/train.tsv", "wrong.tsv", "own.tsv", "gone.tsv")}
    places |= {f"{name}.json": f"corpus.zip#corpus/{name}.json" for name in ("train", "other", "absent")}
    lines = (f"{name} {digest} {address}/{place}\n" for name, place in places.items())
    (tmp_path / "files.txt").write_text("# comment\n" + "".join(lines))
    loaded, wrong, gone, member, other, absent = download(mine, tmp_path / "files.txt")
    assert loaded == f"downloaded {mine}/a/train.tsv"
    assert member == f"downloaded {mine}/train.json"
    assert (mine / "train.json").read_text() == "train.tsv\n"
    assert re.match(r"other\.json cannot be downloaded: corpus/other.json of .* has another SHA-256", other)
    assert re.match(r"absent\.json cannot be downloaded: .*no item named 'corpus/absent.json'", absent)
    assert "pooch" not in capfd.readouterr().err
    assert not {"other.json", "absent.json"} & {path.name for path in mine.iterdir()}
    assert re.match(r"wrong\.tsv cannot be downloaded: .*hash", wrong)
    assert gone.startswith("gone.tsv cannot be downloaded: 404")
    assert {path.name for path in mine.rglob("*.tsv")} == {"train.tsv", "own.tsv"}
    assert (mine / "own.tsv").read_text() == "of another edition\n"


def test_registry_has_the_files_of_the_tasks() -> None:
    files = {line.split()[0] for line in FILES.read_text().splitlines() if not line.startswith("#")}
    assert len(files) == 9
    assert {name for name in files if f"${{corpora}}/{name}" not in option_text("study", SUITE)} == set()


def test_table_of_what_is_built_in() -> None:
    known = built_in()
    assert known["dot"] == "nothing about positions"
    assert known["hard_order_0"] == "exactly one position per output"
    assert known["hard_order_1"].startswith("starts at the first position and moves to the right")
    assert known["transformer"] == "sinusoidal positions of the source; sinusoidal positions of the outputs"
    assert all(known.values())
    mine = [replace(each, model="mine") for each in two_tasks()]
    table = knowledge_table(Results([*two_tasks(), *mine]), known | {"mine": "moves to the left"}).text
    assert dict(table.index) == {
        "additive": "nothing about positions",
        "dot": "nothing about positions",
        "mine": "moves to the left",
    }
    assert table.loc["dot"].squeeze() == "1,003"  # parameters


def test_sentences_name_the_seeds_that_both_models_have() -> None:
    results = Results(two_tasks())
    sentences = describe(results, "dot", compare(results, "dot"))
    # In sort, dot has 75 and 25, and additive 50 and 25: 2.5 of 4 pairs are won; in scan, none
    assert sentences[0] == (
        "dot improves over additive with a probability of 31 % [0, 50] on inputs like those of training "
        "and 100 % on shifted ones, in which equal scores count half (2 tasks, 2 seeds against 2)."
    )
    assert sentences[1:] == [
        f"On no test set is it shown to be {word} than additive." for word in ("better", "worse")
    ]


def test_table_of_scores_has_means_over_the_seeds_of_the_ranking() -> None:
    table = scores_table(Results(two_tasks())).values.astype(float)
    assert table.loc["dot"].to_dict() == pytest.approx(
        {"sort": (75 + 25) / 2, "scan": 30.0, "scan, longer": 250 / 3}
    )


def test_tests_over_inputs_pair_the_seeds_of_both_models() -> None:
    tests = {each.variant + each.metric: each for each in compare(Results(two_tasks()), "dot")}
    assert [each.seeds for each in tests.values()] == [2, 2, 2]
    scan = tests["dot (scan)test/exact_match"]
    assert scan.difference == pytest.approx((3 - 9) / 10)
    # Four of five inputs differ, by -1, -1, -2 and -2; two of 16 swaps have a sum of at least 6
    assert scan.p == pytest.approx(2 / 16)
    assert {each.family_size for each in tests.values()} == {3}
    assert compare(Results(two_tasks()), "additive") == []


def test_cited_digest_covers_scores_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(Results(two_tasks()), path := tmp_path / "results.csv")
    monkeypatch.setattr("attnlab.report.benchmark.scores.STORED", path)
    digests = {stored_digest()}
    for file in (path, path.with_suffix(".npz")):
        file.write_bytes(file.read_bytes() + b"\n")
        digests.add(stored_digest())
    assert len(digests) == 3


def test_scores_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    write(Results(two_tasks()), path := tmp_path / "results.csv")
    path.write_text(path.read_text().replace(",75.0,", ",nan,"))
    with pytest.raises(UserError, match="the score is nan, its 4 inputs give 75"):
        read(path)


def test_only_test_sets_with_equal_data_are_joined() -> None:
    ours = [replace(score("sort", "dot", 0, "1111"), data="other"), score("scan", "dot", 0, "11111")]
    theirs = [score("sort", "additive", 0, "1010"), score("scan", "additive", 0, "10101")]
    joined = join(Results(ours), Results(theirs))
    assert {(each.task, each.model) for each in joined} == {("scan", "dot"), ("scan", "additive")}
    with pytest.raises(UserError, match="No test set has the data of the stored results"):
        join(Results(ours[:1]), Results(theirs))


def test_a_run_trained_again_differs_if_other_inputs_are_right_or_outputs_differ() -> None:
    run = score("sort", "dot", 0, "1100")
    first, elsewhere = Results([run]), replace(run, cpu="another")
    assert differences(first, elsewhere) == []
    again = replace(score("sort", "dot", 0, "0011"), cpu="another", outputs=run.outputs)
    seeds = "test: scores by seed in the file: 0: 50.0"
    inputs, cpu = "test: different inputs are right", "different cpu: a, CPU, again: another"
    assert differences(first, again) == [inputs, cpu, seeds]
    assert differences(first, replace(again, cpu=run.cpu)) == [inputs, seeds]
    worse = replace(score("sort", "dot", 0, "1000"), outputs="x")
    assert differences(first, worse) == [
        "different score: 50.0, again: 25.0",
        f"different outputs: {run.outputs}, again: x",
        seeds,
    ]
    old = Results([replace(run, outputs="", code="")])  # stored without digests
    assert differences(old, run) == []
    assert differences(old, again) == [inputs, cpu, seeds]
    assert other_conditions(first, elsewhere)
    assert not other_conditions(first, run)
    for claimed in ({"parameters": 999}, {"steps": 9}, {"train": "with the test set"}, {"metric": "parses"}):
        (name,) = claimed  # not due to another processor
        assert not other_conditions(first, replace(elsewhere, **claimed))
        assert differences(first, replace(run, **claimed))[0].startswith(f"different {name}: ")
    shifted = score("sort", "dot", 0, "1100", "test/longer")
    assert differences(first, shifted) == ["test/longer: the file lacks this test set"]
    assert not other_conditions(first, replace(shifted, cpu="another"))


def test_broken_rules_are_named() -> None:
    stored = Results(two_tasks())
    own = "attention=dot +attention.reach=2 +attention@attention.match=additive paths.output=here"
    mine = [
        replace(each, model="mine", seed=each.seed + shift, overrides=own)
        for each in two_tasks()
        if each.model == "dot" and each.seed < 2
        for shift in (0, 2)
    ]

    def broken(rows: Iterable[Score], **changes: Any) -> list[str]:
        return violations(Results(replace(each, **changes) for each in rows), stored)

    assert broken(mine) == []
    marathi = score("marathi", "additive", 0, "10")  # with a file that its publisher replaces
    assert violations(Results(mine), Results([*stored, marathi])) == []
    gap = "are needed, without a gap from 0"
    assert broken(each for each in mine if each.seed < 2) == [f"seeds 0, 1: 3 or more {gap}"]
    assert broken(each for each in mine if each.seed) == [f"seeds 1, 2, 3: 3 or more {gap}"]
    assert broken(
        each for each in mine if each.split == "test" and (each.task, each.seed) != ("sort", 1)
    ) == ["test sets or seeds are missing: scan, sort"]
    assert broken(each for each in mine if (each.split, each.seed) != ("test/longer", 2)) == [
        "test sets or seeds are missing: scan"
    ]
    assert broken(
        mine, overrides="attention=dot trainer.max_steps=9 hydra.sweeper.overrides.model.own=[]"
    ) == ["settings beside those of the attention: hydra.sweeper.overrides.model.own=[] trainer.max_steps=9"]
    assert broken(mine, overrides="attention=dot +attention.sizes=[1, 2] trainer.max_steps=[1, 2]") == [
        "settings beside those of the attention: trainer.max_steps=[1, 2]"
    ]
    assert broken(mine, model="dot") == ["dot is a stored mechanism"]
    assert broken([*mine, replace(mine[0], model="additive", code="x")]) == [
        "several values of model",
        "several values of code",
        "additive is a stored mechanism",
    ]
    assert broken([*mine[1:], replace(mine[0], overrides="attention=dot attention.reach=3")]) == [
        "several values of overrides"
    ]
    names = ("metric", "inputs", "steps", "data", "train")
    changed = dict.fromkeys(("metric", "data", "train"), "x") | {"inputs": 1, "steps": 9, "parameters": 1200}
    problems = ("1.19 of the parameters of additive", *(f"another value of {name}" for name in names))
    assert broken(mine, outputs="", **changed) == [
        f"{problem}: sort (test), scan (test), scan (test/longer)" for problem in (*problems, "no outputs")
    ]


def test_seeds_cannot_be_chosen_by_a_task_whose_file_changes() -> None:
    stored = Results([*two_tasks(), score("marathi", "additive", 0, "10")])
    mine = [
        replace(score("sort" if split == "test" else "scan", "mine", seed, right, split), parameters=1008)
        for seed in range(4)
        for split, right in (("test", "1100"), ("test/longer", "110"))
    ]
    mine += [replace(score("scan", "mine", seed, "11000"), parameters=1008) for seed in range(4)]
    assert violations(Results(mine), stored) == []
    best = [replace(score("marathi", "mine", seed, "10"), parameters=1008) for seed in (1, 3)]
    assert violations(Results([*mine, *best]), stored) == ["test sets or seeds are missing: marathi"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpu": ""}, "no cpu: sort (test), scan (test), scan (test/longer)"),
        ({"versions": ""}, "no versions: sort (test), scan (test), scan (test/longer)"),
        ({"overrides": "attention=dot attention._target_=mine.Mine", "code": ""}, "no digest of the code"),
        (
            {"overrides": "attention=dot attention.size=${oc.env:SIZE,24}"},
            "settings that another setting or the environment can change: attention.size=${oc.env:SIZE,24}",
        ),
    ],
)
def test_rows_without_provenance_or_with_changing_settings_are_refused(
    changes: dict[str, str], message: str
) -> None:
    stored = Results(two_tasks())
    mine = [replace(each, model="mine", **changes) for each in two_tasks() if each.model == "dot"]
    assert message in violations(Results(mine), stored)
    assert message not in violations(Results(replace(each, model="mine") for each in two_tasks()), stored)


@pytest.mark.parametrize("counts", [[[1, 1], [1, 1], [0, 0], [0, 0]], [[2, 1], [0, 1], [0, 1], [0, 1]]])
def test_counts_that_no_outputs_have_are_refused(counts: list[list[int]]) -> None:
    """Wrong inputs that do not count, or an input that counts twice, have scores that follow from them."""
    stored, changed = Results(two_tasks()), np.array(counts, dtype=np.uint16)
    mine = score("sort", "mine", 0, "1100")
    impossible = "counts that no outputs have: sort (test)"
    assert impossible not in violations(Results([mine]), stored)
    assert impossible in violations(Results([replace(mine, counts=changed)]), stored)


def test_results_of_an_installed_package_have_no_commit() -> None:
    mine = [replace(each, model="mine", commit="") for each in two_tasks() if each.model == "dot"]
    assert not any("commit" in line for line in violations(Results(mine), Results(two_tasks())))


def test_a_mechanism_may_be_the_first_that_learns_a_test_set() -> None:
    stored = Results([*two_tasks(), score("recall", "additive", 0, "00"), score("recall", "dot", 0, "00")])
    first = score("recall", "mine", 0, "01")
    assert not any("counts that no" in line for line in violations(Results([first]), stored))


def test_equal_scores_have_a_test_over_seeds_too() -> None:
    """A copy of the reference is what a newcomer tries first."""
    rows = [
        each
        for seed, right in enumerate(("1100", "1000", "1110"))
        for each in (score("sort", "additive", seed, right), score("sort", "copy", seed, right))
    ]
    sentences = describe(Results(rows), "copy", compare(Results(rows), "copy"))
    assert "differs by +0.0 points [0.0, 0.0] on inputs like those of training (p = 1.000)," in sentences[1]
    with pytest.raises(UserError, match="gone has no seed on all of its test sets"):
        describe(Results(rows), "gone", [])


def test_with_three_seeds_the_mean_score_is_tested_over_seeds() -> None:
    rows = (("0001", "0011", "0111"), ("0011", "1111", "1111"))
    results = Results(
        score("sort", model, seed, right, split)
        for model, longer, rights in zip(("additive", "dot"), ("100", "111"), rows, strict=True)
        for seed, same in enumerate(rights)
        for split, right in (("test/same", same), ("test/longer", longer))
    )
    assert seed_differences(results, "dot", shifted=False) == [25, 50, 25]
    assert seed_differences(results, "dot", shifted=True) == pytest.approx([200 / 3] * 3)
    # Mean 33.3, standard error 25 / 3: t = 4 with two degrees of freedom; 4.303 standard errors are 35.9
    assert describe(results, "dot", [])[1] == (
        "Over seeds 0, 1, 2, its mean score differs by +33.3 points [-2.5, 69.2] on inputs like those of "
        "training (p = 0.057) and by +66.7 points [66.7, 66.7] on shifted ones (p < 0.001), in paired t "
        "tests."
    )


def test_stored_scores_follow_from_their_counts() -> None:
    stored = read(STORED)
    with STORED.open(newline="") as file:
        assert len([*stored]) == len([*csv.DictReader(file)])
    assert len({each.commit for each in stored}) == 1  # one version of the code
    assert REFERENCE in stored.models


@pytest.mark.slow
@pytest.mark.parametrize("task", ["reverse", "duplicate", "sort", "recall", "cogs", "scan"])
def test_the_suite_is_frozen(task: str) -> None:
    """Its test sets, sizes and steps are those of the stored results."""
    words = read_option("study", SUITE)["hydra"]["sweeper"]["overrides"]["task"][task]
    config = compose_run([f"study={SUITE}", *words, "seed=0"])
    corpus = build_corpus(config)
    vocabularies = build_vocabularies(config, corpus)
    splits = describe_data(corpus, vocabularies)["splits"]
    rows = [each for each in read(STORED) if (each.task, each.model, each.seed) == (task, REFERENCE, 0)]
    for each in rows:
        assert splits[each.split]["sha256"].startswith(each.data)
        assert config.trainer.max_steps == each.steps
    network = build_network(config, vocabularies)
    assert sum(each.numel() for each in network.parameters()) == rows[0].parameters


RECIPES = {
    "reverse": "2beafa05",
    "duplicate": "e8ab1a38",
    "sort": "5fab06ef",
    "recall": "4a15afea",
    "cogs": "4cfed7e8",
    "scan": "bb6b8ae3",
    "dutch": "cdd65420",
    "bulgarian": "bf5388c5",
    "turkish": "3768584c",
    "swedish": "3424fa70",
    "marathi": "e3166192",
    "conala": "6f14d7d0",
}
"""Hashes of the settings that determine the results of `additive`; those of the stored runs differ in their
seed and in the folder of the files."""


def test_the_row_of_a_model_is_marked_in_the_heat_table() -> None:
    (axes,) = draw(scores_table(Results(two_tasks())), "dot").axes
    labels = {label.get_text(): label.get_fontweight() for label in axes.get_yticklabels()}
    assert labels == {"additive": "normal", "dot": "bold"}


def test_the_recipes_are_frozen() -> None:
    tasks = read_option("study", SUITE)["hydra"]["sweeper"]["overrides"]["task"]
    words = {task: [f"study={SUITE}", "corpora=/corpora", f"task={task}", *tasks[task]] for task in tasks}
    assert {task: identify(compose_run(each)) for task, each in words.items()} == RECIPES


MECHANISMS = {
    "own": "090aa00e",
    "additive": "3958a902",
    "dot": "be908463",
    "general": "7448af95",
    "location_sensitive": "318f4bf6",
    "multihead": "41e9081a",
    "monotonic": "a3766a44",
    "local_p": "8c98c724",
    "coverage_tu": "7731857b",
    "shift": "c87c7d10",
    "none": "10de0922",
    "none_matched": "934d3793",
    "concat": "b41bdf77",
    "cosine": "c907c183",
    "scaled_dot": "ecf5bc46",
    "location": "ed2706b7",
    "local_m": "c4398a29",
    "coverage_see": "999164f8",
    "mixture": "3fafb565",
    "forward": "c5f98c5d",
    "mocha": "b64d6f2f",
    "milk": "1a7664c3",
    "hard": "23a0f38b",
    "sigmoid": "40651e44",
    "sink": "109e81c7",
    "differential": "cf2f110c",
    "final": "fd72064d",
    "mean": "1cde8d50",
    "hard_order_0": "b9b54907",
    "hard_order_1": "593f66e6",
    "mingru": "84327ba6",
    "deltanet": "49f3e70b",
    "transformer": "5f710c7f",
}
"""Hashes of the settings on `reverse`, computed with the code of the stored runs."""


def test_the_mechanisms_are_frozen() -> None:
    """A changed default of a mechanism would change what the stored results mean."""
    overrides = read_option("study", SUITE)["hydra"]["sweeper"]["overrides"]
    words = {
        model: [f"study={SUITE}", f"model={model}", *overrides["task"]["reverse"], *given]
        for model, given in overrides["model"].items()
    }
    assert {model: identify(compose_run(each)) for model, each in words.items()} == MECHANISMS
