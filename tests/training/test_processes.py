"""Gradients of accumulated batches and of several processes, and mapped corpora that processes share."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from omegaconf import DictConfig
from torch import Tensor

from attnlab.data import mapped
from attnlab.files.run_directory import Run
from attnlab.training import checkpoints
from attnlab.training.callbacks.checkpoints import LastCheckpoint
from commands import TINY_REVERSE, attnlab
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all

Composed = Callable[..., DictConfig]


def weights_after_one_step(config: DictConfig, **settings: Any) -> Tensor:
    """Train with plain SGD for one epoch of one optimizer step."""
    torch.manual_seed(0)
    module, data = build_all(config)
    Trainer(max_epochs=1, logger=False, gradient_clip_val=None, **{**QUIET, **settings}).fit(
        module, datamodule=data
    )
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def aligned_pairs(folder: Path) -> list[str]:
    """Write pairs of 1 to 8 words, most of them with few links; returns the settings of this data."""
    sentences = [" ".join("abcdefgh"[: 1 + i % 8]) + f" {i}" for i in range(14)]
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{text}\n" for text in sentences))
    links = ["0-0", *(" ".join(f"{j}-{j}" for j in range(i % 3)) for i in range(1, 14))]
    (folder / "links").write_text("".join(f"{line}\n" for line in links))
    return [
        "data=pairs",
        f"data.path={folder / 'pairs.tsv'}",
        f"data.alignments_path={folder / 'links'}",
        "data.val_fraction=0.2",
        "data.test_fraction=0",
        "tokenizer=whitespace",
        "loss.terms.alignment.weight=2",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("aligned", [False, True])
def test_accumulated_gradients_equal_those_of_one_large_batch(
    composed: Composed, tmp_path: Path, aligned: bool
) -> None:
    """Three batches of unequal numbers of tokens, and of unequal shares of target tokens with a link."""
    data = aligned_pairs(tmp_path) if aligned else (*SYNTHETIC, "data.train_lengths=[1,9]")
    common = (*TINY, *data, "optimizer=sgd", "optimizer.lr=1", "scheduler=constant")
    large = weights_after_one_step(composed(*common, f"batching.batch_size={14 if aligned else 12}"))
    accumulated = weights_after_one_step(
        composed(*common, "batching.batch_size=4"), accumulate_grad_batches=3
    )
    torch.testing.assert_close(accumulated, large, rtol=1e-5, atol=1e-5 if aligned else 1e-6)


@pytest.mark.slow
def test_gradients_of_two_processes_equal_those_of_one_large_batch(tmp_path: Path) -> None:
    """One step of SGD over the whole training split, whose halves have unequal numbers of tokens.

    With guided alignment, from the weights of another run, and with a frozen part.
    """
    common = ("train", *TINY_REVERSE, "data.train_lengths=[1,4]", "trainer.max_epochs=1")
    attnlab(*common, "name=source", folder=tmp_path)
    (source,) = (tmp_path / "outputs" / "source").iterdir()
    start = checkpoints.read_checkpoint(Run(source).best)["state_dict"]
    common = (*common, "optimizer=sgd", "optimizer.lr=1", "scheduler=constant")
    common = (*common, "trainer.gradient_clip_val=null", "loss.terms.alignment.weight=0.5")
    common = (*common, f"init.from={source}", "init.freeze=[source_embedding]")
    weights = []
    for words in (
        ["batching.batch_size=200"],
        ["trainer.devices=2", "batching.batch_size=50", "trainer.accumulate_grad_batches=2"],
    ):
        attnlab(*common, *words, f"name=run{len(words)}", folder=tmp_path)
        (directory,) = (tmp_path / "outputs" / f"run{len(words)}").iterdir()
        result = Run(directory).read_result()
        assert (result["steps"], result["init"]["left_out"]) == (1, 0)
        weights.append(checkpoints.read_checkpoint(Run(directory).last)["state_dict"])
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-6)
    frozen, trained = "network.source_embedding.table.weight", "network.target_embedding.table.weight"
    assert torch.equal(weights[0][frozen], start[frozen])
    assert not torch.allclose(weights[0][trained], start[trained], atol=1e-4)
    torch.testing.assert_close(weights[0][trained], start[trained], rtol=0, atol=0.5)


NOISE = (
    "attention=monotonic",  # draws noise
    "teacher_forcing.start=0.5",
    "teacher_forcing.per=token",
    "embedding.dropout=0.2",
    "embedding.word_dropout=0.1",
    "encoder.recurrent_dropout=0.2",
    "decoder.recurrent_dropout=0.2",
    "loss.terms.label_smoothing.weight=0.1",
    "callbacks.averaging.decay=0.9",
    "trainer.accumulate_grad_batches=2",
    "trainer.val_check_interval=4",
    "trainer.max_epochs=2",
    "trainer.log_every_n_steps=1",
    "logger=none",
)


def write_corpora(folder: Path) -> list[str]:
    """Write two corpora and a validation file; returns the overrides that train on them."""
    generator = random.Random(4)
    for name, size in (("news", 90), ("talks", 31), ("val", 9)):
        rows = [" ".join(generator.choices("abcdefg", k=1 + i % 9)) for i in range(size)]
        (folder / f"{name}.tsv").write_text("".join(f"{row}\t{row[::-1]}\n" for row in rows))
    return [
        *("data=pairs", "data.train=[news.tsv,talks.tsv]"),
        *("data.val=val.tsv", "data.test=val.tsv", "tokenizer=whitespace", "paths.cache=cache"),
    ]


@pytest.mark.slow
def test_mapped_corpora_are_equal_to_the_bit_on_two_processes_and_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory; mapped; mapped and interrupted twice; and killed by `attnlab verify`."""
    outputs = []
    for name, stops in {"memory": [99], "mapped": [99], "resumed": [3, 9, 99]}.items():
        (tmp_path / name).mkdir()
        overrides = write_corpora(tmp_path / name)
        for stop in stops:
            monkeypatch.setattr(LastCheckpoint, "on_train_batch_end", interrupt_after(stop))
            words = ("train", *TINY, *overrides, *NOISE, "name=run", "trainer.devices=2")
            attnlab(*words, folder=tmp_path / name, code=0 if stop == 99 else 75)
        (directory,) = (tmp_path / name).glob("outputs/run/*")
        outputs.append(outputs_of(Run(directory)))
        assert (tmp_path / name / "cache/corpora").exists() == (name != "memory")
        monkeypatch.setattr(mapped, "IN_MEMORY", 20)
    memory, *others = outputs
    for other in others:
        for name in memory:
            assert other[name] == memory[name], name
    verify = ("verify", str(directory), "--kills", "2")
    assert "PASS  kills: 2" in attnlab(*verify, folder=tmp_path / "resumed").stdout


def interrupt_after(steps: int) -> Callable[..., None]:
    """Return a hook that requests the interruption after this many optimizer steps."""

    def on_train_batch_end(callback: LastCheckpoint, trainer: Trainer, *_: Any) -> None:
        callback.interrupted = trainer.global_step >= steps

    return on_train_batch_end


def outputs_of(run: Run) -> dict[str, Any]:
    """Return the outputs of a run that must be equal."""
    result = run.read_result()
    assert len(result["epoch_digests"]) == 2
    assert result["epoch_digests"][-1] == result["digest"]
    outputs = {name: result[name] for name in ("metrics", "steps", "epoch_digests")}
    for path in (run.best, run.last):
        weights = checkpoints.read_checkpoint(path)["state_dict"]
        outputs[path.name] = {name: tensor.numpy().tobytes() for name, tensor in weights.items()}
    outputs |= {path.name: path.read_bytes() for path in run.predictions.iterdir()}
    lines = run.metrics.read_text().splitlines()
    return {**outputs, "metrics.csv": [line for line in lines if ",throughput/" not in line]}
