from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.types import EOS, SOS, Batch
from digits import DIGITS

CORPUS = Corpus(
    train=[Pair(" ".join("3456789"[: 1 + place % 7]), "3") for place in range(10)],
    val=[Pair("3 4 5", "5"), Pair("3", "4")],
    test=[Pair("9", "9 9"), Pair("8", "8"), Pair("7 7", "7")],
)


def data(**settings: Any) -> Seq2SeqData:
    return Seq2SeqData(CORPUS, DIGITS, **{"batch_size": 3, **settings})


class Recorder(LightningModule):
    """Records the batches of each stage and does not learn."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.trained: list[list[int]] = []
        self.tested: list[list[int]] = []

    def training_step(self, batch: Batch) -> Tensor:
        self.trained.append(batch.indices.tolist())
        return self.weight * batch.source.sum()

    def validation_step(self, batch: Batch) -> None:
        pass

    def test_step(self, batch: Batch) -> None:
        self.tested.append(batch.indices.tolist())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Saver(Callback):
    """Saves after every batch and after every epoch, when Lightning counts batches differently."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Trainer, *args: object) -> None:
        trainer.save_checkpoint(self.folder / f"batch {trainer.global_step}.ckpt")

    def on_train_epoch_end(self, trainer: Trainer, *args: object) -> None:
        trainer.save_checkpoint(self.folder / f"epoch {trainer.global_step}.ckpt")


def trainer(folder: Path, **settings: Any) -> Trainer:
    return Trainer(
        enable_checkpointing=False,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **settings,
    )


@pytest.mark.parametrize(
    ("workers", "limits"),
    [
        (0, {}),
        pytest.param(2, {}, marks=pytest.mark.slow),
        pytest.param(0, {"limit_train_batches": 3}, marks=pytest.mark.slow),
        pytest.param(0, {"limit_train_batches": 0.75}, marks=pytest.mark.slow),
    ],
    ids=["0 workers", "2 workers", "3 batches an epoch", "3 quarters of an epoch"],
)
def test_resumed_training_continues_with_the_next_batch(
    tmp_path: Path, workers: int, limits: dict[str, Any]
) -> None:
    whole = Recorder()
    trainer(tmp_path, max_epochs=3, callbacks=[Saver(tmp_path)], **limits).fit(whole, data(workers=workers))
    epoch = 3 if limits else 4  # 10 pairs in batches of 3
    assert len(whole.trained) == 3 * epoch
    for event, step in (("batch", 1), ("batch", epoch), ("epoch", epoch), ("batch", epoch + 2)):
        resumed = Recorder()
        checkpoint = tmp_path / f"{event} {step}.ckpt"
        trainer(tmp_path, max_epochs=3, **limits).fit(resumed, data(workers=workers), ckpt_path=checkpoint)
        assert resumed.trained == whole.trained[step:], checkpoint.name


def test_test_stage_uses_the_test_split(tmp_path: Path) -> None:
    model, seq2seq = Recorder(), data(evaluation_batch_size=2)
    trainer(tmp_path).test(model, seq2seq, verbose=False)
    assert model.tested == [[0, 1], [2]]


def test_loaders_work_without_a_trainer() -> None:
    seq2seq = data(batch_size=10, source_eos=True)
    seq2seq.setup("fit")
    (batch,) = seq2seq.train_dataloader()
    assert batch.source.shape == (10, 8)
    (batch,) = seq2seq.val_dataloader()
    assert batch.indices.tolist() == [1, 0]
    assert batch.source.tolist() == [[3, EOS, 0, 0], [3, 4, 5, EOS]]
    assert batch.target.tolist() == [[SOS, 4, EOS], [SOS, 5, EOS]]
    assert [seq2seq.pairs("val")[index].source for index in batch.indices] == ["3", "3 4 5"]


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_draw_nothing_from_the_global_generator(workers: int) -> None:
    seq2seq = data(workers=workers)
    seq2seq.setup("fit")
    state = torch.get_rng_state()
    next(iter(seq2seq.train_dataloader()))
    next(iter(seq2seq.val_dataloader()))
    assert torch.equal(torch.get_rng_state(), state)


def test_token_batches_do_not_limit_evaluation_batches() -> None:
    seq2seq = data(batch_size=20, batch_type="tokens")
    seq2seq.setup("fit")
    for batch in seq2seq.train_dataloader():
        assert len(batch.indices) * (batch.source.size(1) + batch.labels.size(1)) <= 20
    assert [len(batch.indices) for batch in seq2seq.val_dataloader()] == [2]


def test_shards_beyond_the_number_of_inputs_have_no_batches(tmp_path: Path) -> None:
    module, loaded = Recorder(), data(shards=4)
    trainer(tmp_path).test(module, loaded, verbose=False)
    assert sorted(index for batch in module.tested for index in batch) == [0, 1, 2]
    assert [len(batch) for batch in module.tested] == [1, 1, 1]
