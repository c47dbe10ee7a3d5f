"""Settings that `wandb agent` writes as options, and `zip(…)` on the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from commands import TINY_REVERSE, attnlab


def test_settings_may_be_written_as_options(tmp_path: Path) -> None:
    options = ["--encoder.size=12", "--seed=3", "--tokenizer@target_tokenizer=symbols"]
    completed = attnlab("train", "--prepare", *options, *TINY_REVERSE[:-1], folder=tmp_path)
    assert "additive-seed3-" in completed.stdout
    (config,) = tmp_path.glob("outputs/reverse/*/config.yaml")
    assert "target_tokenizer:" in config.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "zip(seed=1,2 encoder.size=3)"], "each setting once, and the same number of values"),
        (["-m", "zip(seed=1,2 encoder.size=3,4)", "seed=5,6"], "give all values of seed in one sweep"),
        (["zip(seed=1,2 encoder.size=3,4)"], "this is a sweep: add -m"),
        (["--sead=1"], "Unknown setting 'sead'. Did you mean 'seed'?"),
    ],
)
def test_wrong_sweeps_are_one_line(arguments: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused("train", *arguments)
