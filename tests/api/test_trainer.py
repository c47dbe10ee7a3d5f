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
    script = tmp_path / "script.py"
    script.write_text(f"""
import lightning
from lightning.pytorch.loggers import WandbLogger
import attnlab

class Count(lightning.Callback):
    def on_train_start(self, trainer, module):
        self.indices = []
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.indices += batch.indices.tolist()
    def on_train_end(self, trainer, module):
        print(f"indices={{sorted(self.indices)}}", flush=True)
    def on_validation_end(self, trainer, module):
        print(f"evaluated={{len(module.outputs)}}", flush=True)

if __name__ == "__main__":
    module, data = attnlab.build({settings(row)!r})
    arguments = {{**{OWN_TRAINER!r}, "max_epochs": 1, "num_sanity_val_steps": 0, **dict({row.code})}}
    lightning.Trainer(**arguments, callbacks=[Count()]).fit(module, data)
""")
    environment = clean_environment(OMP_NUM_THREADS="1")
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    shares = [share.split(", ") for share in re.findall(r"indices=\[([\d, ]+)\]", done.stdout)]
    assert len(shares) == (2 if "devices=2" in row.code else 1)
    assert sorted(int(index) for share in shares for index in share) == [*range(12)]
    evaluated = re.findall(r"evaluated=(\d+)", done.stdout)  # two processes may print on one line
    assert {*evaluated} == {"4"}
