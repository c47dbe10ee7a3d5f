from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.tokenization.training import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.types import EOS, SOS, Batch

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable"),  # but its order is
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning 2.6 on torch 2.13
]

digits = symbols(["3"], count=7)
CORPUS = Corpus(
    train=[Pair(" ".join("3456789"[: 1 + place % 7]), "3") for place in range(10)],
    val=[Pair("3 4 5", "5"), Pair("3", "4")],
    test=[Pair("9", "9 9"), Pair("8", "8"), Pair("7 7", "7")],
)


def data(**settings: Any) -> Seq2SeqData:
    return Seq2SeqData(CORPUS, Vocabularies(digits, digits), **{"batch_size": 3, **settings})


class Recorder(LightningModule):
    """Learns nothing and notes what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[list[int]] = []
        self.tested: list[list[int]] = []

    def training_step(self, batch: Batch) -> Tensor:
        self.seen.append(batch.indices.tolist())
        return self.weight * batch.source.sum()

    def validation_step(self, batch: Batch) -> None:
        pass

    def test_step(self, batch: Batch) -> None:
        self.tested.append(batch.indices.tolist())

    def predict_step(self, batch: Batch) -> list[int]:
        return batch.indices.tolist()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Saver(Callback):
    """Saves after every batch, and again after every epoch: the two moments that count batches otherwise."""

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
    [(0, {}), (2, {}), (0, {"limit_train_batches": 3}), (0, {"limit_train_batches": 0.75})],
    ids=["0 workers", "2 workers", "3 batches an epoch", "3 quarters of an epoch"],
)
def test_a_resumed_training_sees_what_remained(tmp_path: Path, workers: int, limits: dict[str, Any]) -> None:
    whole = Recorder()
    trainer(tmp_path, max_epochs=3, callbacks=[Saver(tmp_path)], **limits).fit(whole, data(workers=workers))
    epoch = 3 if limits else 4  # 10 pairs by threes
    assert len(whole.seen) == 3 * epoch
    for moment, step in (("batch", 1), ("batch", epoch), ("epoch", epoch), ("batch", epoch + 2)):
        rest = Recorder()
        checkpoint = tmp_path / f"{moment} {step}.ckpt"
        trainer(tmp_path, max_epochs=3, **limits).fit(rest, data(workers=workers), ckpt_path=checkpoint)
        assert rest.seen == whole.seen[step:], checkpoint.name


def test_epochs_differ_and_each_holds_every_pair(tmp_path: Path) -> None:
    model = Recorder()
    trainer(tmp_path, max_epochs=2).fit(model, data())
    first, second = model.seen[:4], model.seen[4:]
    assert first != second
    for epoch in (first, second):
        assert sorted(place for batch in epoch for place in batch) == list(range(10))


def test_testing_and_predicting_read_the_test_split(tmp_path: Path) -> None:
    model, seq2seq = Recorder(), data(evaluation_batch_size=2)
    testing = trainer(tmp_path)
    testing.test(model, seq2seq, verbose=False)
    assert model.tested == [[0, 1], [2]]
    assert testing.predict(model, seq2seq) == [[0, 1], [2]]


def test_loaders_work_without_a_trainer() -> None:
    seq2seq = data(batch_size=10, source_eos=True)
    seq2seq.setup("fit")
    (batch,) = seq2seq.train_dataloader()
    assert batch.source.shape == (10, 8)
    (batch,) = seq2seq.val_dataloader()
    assert batch.indices.tolist() == [1, 0]
    assert batch.source.tolist() == [[3, EOS, 0, 0], [3, 4, 5, EOS]]
    assert batch.target.tolist() == [[SOS, 4, EOS], [SOS, 5, EOS]]
    assert [seq2seq.pairs("val")[place].source for place in batch.indices] == ["3", "3 4 5"]


def test_a_limit_on_tokens_is_not_one_on_evaluation() -> None:
    seq2seq = data(batch_size=20, batch_type="tokens")
    seq2seq.setup("fit")
    for batch in seq2seq.train_dataloader():
        assert len(batch.indices) * (batch.source.size(1) + batch.labels.size(1)) <= 20
    assert [len(batch.indices) for batch in seq2seq.val_dataloader()] == [2]


def test_overfitting_batches_is_refused_with_the_way_to_do_it(tmp_path: Path) -> None:
    overfitting = trainer(tmp_path, max_epochs=1, overfit_batches=1)
    with pytest.raises(UserError, match=r"use trainer\.limit_train_batches"):
        overfitting.fit(Recorder(), data())
