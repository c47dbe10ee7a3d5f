"""Parts from outside are checked before a run trains, and before a sweep; those of attnlab pass too."""

from pathlib import Path

import pytest

from attnlab.cli.main import run
from attnlab.config.compose import compose_run
from attnlab.config.options import CONF
from attnlab.jobs.preflight import build_on_meta, find_error
from attnlab.testing import PartError
from attnlab.training.own_parts import check_parts

PADDED = """
import torch
from attnlab.nn.attention import Attention

class Padded(Attention):
    def score(self, query, keys, state):
        return torch.bmm(query, keys.transpose(1, 2)) * keys.shape[1]
"""
OVERRIDES = ["attention=dot", "attention._target_=padded.Padded", "encoder.size=8", "decoder.size=16"]


def check(overrides: list[str], *, shipped: bool = False) -> list[str]:
    config = compose_run(overrides)
    return [*check_parts(config, build_on_meta(config), shipped=shipped)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice",
    [
        f"{group}={path.stem}"
        for group in ("encoder", "decoder")
        for path in sorted((CONF / group).glob("*.yaml"))
    ],
)
def test_encoders_and_decoders_of_attnlab_keep_their_contract(choice: str) -> None:
    readout = ["readout=marginal"] if choice == "decoder=exact_hard" else []
    assert len(check([choice, *readout], shipped=True)) == 3


def test_parts_of_attnlab_are_not_checked_again() -> None:
    assert check(["attention=multihead"]) == []


def test_slip_is_found_by_command_run_and_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "padded.py").write_text(PADDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    message = "padded.Padded.score (padded.py:6) gives a sentence other results alone"
    assert run(["check", *OVERRIDES]) == 1
    assert message in capsys.readouterr().err
    with pytest.raises(PartError, match="padded length"):
        check(OVERRIDES)
    error = find_error(compose_run(OVERRIDES))
    assert error is not None
    assert message in error
