import json
from pathlib import Path

import pytest

from commands import TINY_REVERSE, attnlab

TERM = """
from attnlab.errors import UserError
from attnlab.training.losses.base import LossTerm


class Refusing(LossTerm):
    def __call__(self, outputs, batch, progress):
        raise UserError("this term is called")
"""


@pytest.mark.slow
def test_bench_times_training_and_search_of_two_configurations(tmp_path: Path) -> None:
    options = ["--rounds", "2", "--batches", "2", "--json", "speed.json", "--against", "fused=false"]
    done = attnlab("bench", *TINY_REVERSE, "trainer.precision=bf16-mixed", *options, folder=tmp_path)
    assert done.stderr == ""
    saved = json.loads((tmp_path / "speed.json").read_text())
    timings = saved["seconds and tokens"]
    works = ["train", "greedy", "beam 5"]
    assert [*timings] == [*works, *(f"{work}, fused=false" for work in works)]
    assert all(work in done.stdout for work in timings)
    assert all(seconds > 0 and tokens > 0 for times in timings.values() for seconds, tokens in times)
    assert timings["train"][0][1] == timings["train"][2][1]  # each round has the same batches
    assert [path.name for path in tmp_path.iterdir()] == ["speed.json"]


@pytest.mark.slow
def test_bench_trains_with_the_loss_terms(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TERM)
    term = "loss.terms.mine={_target_:mine.Refusing,weight:1}"
    done = attnlab("bench", *TINY_REVERSE, term, "--no-search", folder=tmp_path, code=1)
    assert "mine.Refusing.__call__" in done.stderr
    assert "this term is called" in done.stderr
