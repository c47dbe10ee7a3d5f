"""Each row of the page on Lightning's Trainer, with the public module and data."""

import copy
import pickle
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import lightning.pytorch.callbacks
import lightning.pytorch.loggers
import pytest
import torch
from lightning import Trainer
from lightning.pytorch.profilers import AdvancedProfiler
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.tuner import Tuner
from torch.utils.data import DataLoader

import attnlab
from commands import clean_environment
from forked import ForkedProcess
from tiny_runs import OWN_TRAINER, SYNTHETIC, TINY
from trainer_rows import ROWS, Row

NAMES = {
    **vars(lightning.pytorch.callbacks),
    **vars(lightning.pytorch.loggers),
    "AdvancedProfiler": AdvancedProfiler,
    "DataLoader": DataLoader,
    "Seq2SeqModule": attnlab.Seq2SeqModule,
    "SingleDeviceStrategy": SingleDeviceStrategy,
    "Trainer": Trainer,
    "Tuner": Tuner,
    "attnlab": attnlab,
    "copy": copy,
    "pickle": pickle,
    "torch": torch,
    "quiet": OWN_TRAINER,
}
SCRIPT = Path(__file__).parents[1] / "trainer_script.py"
ALL = [row for rows in ROWS.values() for row in rows]


def is_call(row: Row) -> bool:
    return row in ROWS["Calls"]


def settings(row: Row) -> list[str]:
    return [*TINY, *SYNTHETIC, "embedding.dropout=0.1", *row.settings.split()]


@cache
def built(settings: tuple[str, ...]) -> tuple[attnlab.Seq2SeqModule, attnlab.Seq2SeqData]:
    return attnlab.build(settings)


def train(row: Row) -> None:
    """Run the row and check that it trained, if it does."""
    module, data = copy.deepcopy(built(tuple(settings(row))))
    before = copy.deepcopy(module.state_dict())
    base = {**OWN_TRAINER, "max_epochs": 2 if is_call(row) else 1}
    if is_call(row):
        trainer = Trainer(**base)
        exec(row.code, {**NAMES, "trainer": trainer, "module": module, "data": data})
        return
    arguments = eval(f"dict({row.code})", NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's own advice on unusual arguments
        trainer = Trainer(**(arguments if arguments.get("barebones") else {**base, **arguments}))
        trainer.fit(module, data)
    assert trainer.global_step > 0
    assert all(parameter.isfinite().all() for parameter in module.parameters())
    assert any(not value.equal(before[name]) for name, value in module.state_dict().items())


def test_the_table_has_sixty_rows() -> None:
    assert len(ALL) >= 60
    assert len({row.code for row in ALL}) == len(ALL)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", [row for row in ALL if not row.processes], ids=lambda row: row.code)
def test_row(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if not row.refused:
        train(row)
        return
    with pytest.raises(attnlab.UserError) as error:
        train(row)
    assert str(error.value).startswith(row.refused)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ALL if row.processes], ids=lambda row: row.code)
def test_row_with_processes(row: Row, tmp_path: Path) -> None:
    """Over all processes, every pair is trained on once, and every validation pair is evaluated once."""
    arguments = f"{{**{OWN_TRAINER}, 'max_epochs': 1, 'num_sanity_val_steps': 0, **dict({row.code})}}"
    command = [sys.executable, str(SCRIPT), arguments, " ".join(settings(row))]
    with ForkedProcess(
        command,
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    shares = [share.split(", ") for share in re.findall(r"indices=\[([\d, ]+)\]", output)]
    assert len(shares) == (2 if "devices=2" in row.code else 1)
    assert sorted(int(index) for share in shares for index in share) == [*range(12)]
    evaluated = re.findall(r"evaluated=(\d+)", output)  # two processes may print on one line
    assert {*evaluated} == {"4"}
