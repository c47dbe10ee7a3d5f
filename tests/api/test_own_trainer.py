"""The module and the data of `attnlab.build` with a Trainer of the user."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelSummary
from lightning.pytorch.loggers import CSVLogger

import attnlab
from attnlab.data.corpus import Pair
from tiny_runs import SYNTHETIC, TINY, build_all

TRAIN = [("3 4", "4 3"), ("5 6 3", "3 6 5"), ("4 5", "5 4"), ("6 3 4", "4 3 6"), ("5 3", "3 5")]
VAL = [("3 5", "5 3"), ("4 6", "6 4")]
SIZES = [word for word in TINY if not word.startswith("trainer.")]
CPU: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "log_every_n_steps": 1,
}


def test_pairs_are_trained_and_translated() -> None:
    module, data = attnlab.build(
        [*SIZES, "attention=dot", "decoder=luong", "tokenizer=characters"], train=TRAIN, val=VAL
    )
    assert data.pairs("train") == [Pair(*pair) for pair in TRAIN]
    before = [parameter.detach().clone() for parameter in module.parameters()]
    trainer = Trainer(max_epochs=2, **CPU)
    trainer.fit(module, data)
    assert trainer.global_step == 4  # two batches of at most four pairs in each of two epochs
    assert torch.isfinite(trainer.callback_metrics["val/loss"])
    assert any(not old.equal(new) for old, new in zip(before, module.parameters(), strict=True))
    predictions = attnlab.load(module).translate(["3 4 5", "6"])
    assert [prediction.source for prediction in predictions] == ["3 4 5", "6"]


def test_build_equals_the_builders_of_training() -> None:
    overrides = [*TINY, *SYNTHETIC, "seed=3"]
    module, data = attnlab.build(overrides)
    torch.manual_seed(3)
    expected, _ = build_all(attnlab.compose(overrides))
    for name, value in expected.state_dict().items():
        assert value.equal(module.state_dict()[name]), name
    assert {split: len(pairs) for split, pairs in data.corpus.splits.items()} == {
        "train": 12,
        "val": 4,
        "test": 4,
    }


@pytest.mark.parametrize("readout", ["softmax", "pointer_generator"])
def test_forward_returns_the_logits_of_every_position(readout: str) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC, f"readout={readout}"])
    module.eval()
    batch = data.examples("train")[[0, 1, 2]]
    logits = module(batch)
    assert logits.shape[:2] == batch.labels.shape
    torch.testing.assert_close(logits[batch.labels != 0], module.teacher_forced(batch).logits)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_steps": 2},
        {"fast_dev_run": True},
        {"limit_train_batches": 1, "limit_val_batches": 1},
        {"accumulate_grad_batches": 2},
        {"gradient_clip_val": 0.5},
        {"gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"},
        {"check_val_every_n_epoch": 2, "max_epochs": 2},
        {"val_check_interval": 0.5},
        {"num_sanity_val_steps": 0},
        {"deterministic": True},
        {"detect_anomaly": True},
        {"precision": "bf16-mixed"},
        {"callbacks": [EarlyStopping("val/loss")], "max_epochs": 2},
        {"callbacks": [ModelSummary(2)], "enable_model_summary": True},
        {"reload_dataloaders_every_n_epochs": 1, "max_epochs": 2},
    ],
    ids=lambda arguments: ",".join(arguments),
)
def test_arguments_of_the_trainer_work(arguments: dict[str, Any]) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC])
    trainer = Trainer(**{**CPU, "max_epochs": 1, **arguments})
    trainer.fit(module, data)
    assert trainer.global_step > 0
    assert all(parameter.isfinite().all() for parameter in module.parameters())


def test_a_logger_of_lightning_receives_the_scores(tmp_path: Path) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC])
    logger = CSVLogger(tmp_path)
    Trainer(**{**CPU, "logger": logger, "max_epochs": 1}).fit(module, data)
    header = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"train/loss", "val/loss", "val/exact_match"} <= {*header}


def test_incomplete_pairs_are_refused() -> None:
    with pytest.raises(attnlab.UserError, match="both train and val"):
        attnlab.build(train=TRAIN)


@pytest.mark.slow
@pytest.mark.parametrize("wrapped", [True, False])
def test_the_sampler_of_lightning_is_refused_in_two_processes(wrapped: bool, tmp_path: Path) -> None:
    """Without it, both processes together train on every pair once."""
    from subprocess import run
    from sys import executable

    script = tmp_path / "script.py"
    script.write_text(f"""
import lightning
import attnlab

class Count(lightning.Callback):
    def __init__(self):
        self.indices = []
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.indices += batch.indices.tolist()
    def on_train_end(self, trainer, module):
        print(f"rank={{trainer.global_rank}} indices={{sorted(self.indices)}}", flush=True)

module, data = attnlab.build({[*TINY, *SYNTHETIC]!r})
lightning.Trainer(
    **{CPU!r}, devices=2, strategy="ddp", max_epochs=1, use_distributed_sampler={wrapped}, callbacks=[Count()]
).fit(module, data)
""")
    done = run([executable, str(script)], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    if wrapped:
        assert done.returncode != 0
        assert "use_distributed_sampler=False" in done.stderr
        assert "indices=" not in done.stdout
        return
    assert done.returncode == 0, done.stderr
    shares = [
        line.partition("indices=")[2].strip("[]").split(", ")
        for line in done.stdout.splitlines()
        if "indices=" in line
    ]
    assert len(shares) == 2
    assert sorted(int(index) for share in shares for index in share) == [*range(12)]
