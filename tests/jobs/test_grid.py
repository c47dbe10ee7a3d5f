"""The jobs of a sweep: combinations, and settings that change together."""

from pathlib import Path

import pytest

from attnlab.config.options import config_dirs
from attnlab.errors import UsageError
from attnlab.jobs.grid import list_jobs, split_space

PARAMS = {"seed": "0,1", "variant": "a"}
ZIPS = [{"encoder.size": "5,7", "decoder.size": "11,13"}]


def jobs(*arguments: str, params: dict[str, str] | None = None) -> list[str]:
    found = list_jobs(PARAMS if params is None else params, [] if params == {} else ZIPS, {}, arguments)
    return [" ".join(job) for job in found]


def test_settings_of_a_zip_change_together() -> None:
    assert jobs() == [
        "seed=0 variant=a encoder.size=5 decoder.size=11",
        "seed=0 variant=a encoder.size=7 decoder.size=13",
        "seed=1 variant=a encoder.size=5 decoder.size=11",
        "seed=1 variant=a encoder.size=7 decoder.size=13",
    ]
    assert jobs("zip(a=1,2,3 b=range(4,7) c=[1, 2],[3],{x: 4})", "d=8,9", params={}) == [
        f"a={a} b={b} c={c} d={d}"
        for a, b, c in ((1, 4, "[1,2]"), (2, 5, "[3]"), (3, 6, "{x:4}"))
        for d in (8, 9)
    ]


def test_command_line_replaces_the_settings_of_a_study_also_in_a_zip() -> None:
    assert jobs("seed=3", "++encoder.size=2") == [
        "variant=a decoder.size=11 seed=3 ++encoder.size=2",
        "variant=a decoder.size=13 seed=3 ++encoder.size=2",
    ]
    assert jobs("zip(seed=3,4 variant=b,c)", "encoder.size=1", "decoder.size=2") == [
        "seed=3 variant=b encoder.size=1 decoder.size=2",
        "seed=4 variant=c encoder.size=1 decoder.size=2",
    ]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("zip(a=1,2 b=1,2,3)", r"^zip\(a=1,2 b=1,2,3\): .* same number of values; a has 2, b has 3$"),
        ("zip(a=1,2 a=3,4)", "each setting once"),
        ("a=interval(0,1)", "a sweep needs a list of values; hydra/sweeper=optuna searches intervals"),
    ],
)
def test_sweep_that_has_no_list_of_jobs_is_refused(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        jobs(word)


def test_glob_finds_the_options_of_a_users_folder(tmp_path: Path) -> None:
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "local_z.yaml").touch()
    with config_dirs([str(tmp_path)]):
        assert jobs("attention=glob(local_*)", params={}) == [
            f"attention=local_{name}" for name in ("m", "p", "z")
        ]
    with pytest.raises(UsageError, match=r"attention=glob\(z\*\): no option has such a name"):
        jobs("attention=glob(z*)", params={})


def test_sweep_over_dictionaries_gives_a_job_for_each() -> None:
    assert jobs("+x={a:1},{b:[2,3]}", params={}) == ["+x={a:1}", "+x={b:[2,3]}"]


def test_groups_of_both_sides_are_different_settings() -> None:
    target = "tokenizer@target_tokenizer"
    assert list_jobs({"tokenizer": "words,characters"}, [], {}, [f"{target}=words"]) == [
        ["tokenizer=words", f"{target}=words"],
        ["tokenizer=characters", f"{target}=words"],
    ]
    space, others = split_space({}, ["tokenizer=characters", f"{target}=words", "a=interval(1,2)"], [])
    assert ([*space], others) == (["a"], ["tokenizer=characters", f"{target}=words"])


def test_numbers_stand_for_further_overrides() -> None:
    further = {"encoder.size": {5: ["decoder.size=11"], 7: ["decoder.size=13"]}}
    assert list_jobs({"encoder.size": "5,7"}, [], further, []) == [
        ["decoder.size=11", "encoder.size=5"],
        ["decoder.size=13", "encoder.size=7"],
    ]
