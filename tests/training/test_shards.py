"""Virtual shards: equal bits on any number of processes."""

import queue
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Trainer
from omegaconf import DictConfig
from torch import Tensor, distributed

from attnlab.data import mapped
from attnlab.data.batch_sampler import shards_of
from attnlab.errors import UserError
from attnlab.files.run_directory import Run
from attnlab.files.run_identity import identify
from attnlab.training import checkpoints
from attnlab.training.callbacks.checkpoints import LastCheckpoint
from attnlab.training.shards import Group, Shards, cut, tree_sum
from attnlab.types import PAD
from commands import TINY_REVERSE, attnlab
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all

Composed = Callable[..., DictConfig]
SIZES = [(count, world) for count in range(1, 9) for world in range(1, count + 1)]


def test_every_process_holds_consecutive_shards() -> None:
    for count, world in SIZES:
        shares = [shards_of(rank, world, count) for rank in range(world)]
        assert [shard for share in shares for shard in share] == list(range(count))
        holder = Group(count, 0, world).holder
        assert all(share for share in shares)
        assert all(holder(shard) == rank for rank, share in enumerate(shares) for shard in share)


def test_tree_sum_does_not_depend_on_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads stand for processes: the sums of 1 to 8 of them are equal to the last bit."""
    channels: dict[tuple[int, int], queue.Queue[Tensor]] = {}
    here = threading.local()
    monkeypatch.setattr(distributed, "send", lambda tensor, to: channels[here.rank, to].put(tensor.clone()))
    monkeypatch.setattr(
        distributed, "recv", lambda tensor, of: tensor.copy_(channels[of, here.rank].get(timeout=10))
    )
    all_vectors = 10 ** torch.empty(8, 50).uniform_(-6, 6)

    def sums_of(count: int, world: int) -> list[Tensor]:
        """Return what each of `world` processes gets."""
        channels.update({(a, b): queue.Queue() for a in range(world) for b in range(world)})
        sums = [torch.empty(0)] * world

        def work(rank: int) -> None:
            here.rank = rank
            group = Group(count, rank, world)
            sums[rank] = tree_sum(lambda shard: all_vectors[shard].clone(), range(count), group)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sums

    for count, world in SIZES:
        sums = sums_of(count, world)
        assert torch.equal(sums[0], sums_of(count, 1)[0]), (count, world)
        torch.testing.assert_close(sums[0], all_vectors[:count].sum(dim=0))
        assert all(len(vector) == 50 for vector in sums)  # buffers of the right size on all processes


def test_tree_sum_of_an_example() -> None:
    """1 + 1e-8 is 1 in fp32: only the order (1 - 1) + (1e-8 + 1e-8) keeps the small terms."""
    terms = torch.tensor([[1.0], [-1.0], [1e-8], [1e-8]])
    assert tree_sum(lambda shard: terms[shard].clone(), range(4), Group(4, 0, 1)).item() == pytest.approx(
        2e-8
    )


def test_shards_divide_a_batch_and_have_their_own_padding(composed: Composed) -> None:
    _, data = build_all(composed(*TINY, *SYNTHETIC, "data.train_lengths=[2,9]", "readout=pointer_generator"))
    examples = data.examples("train")
    order = sorted(range(7), key=lambda index: -int(examples.target_lengths[index]))
    batch = examples[order]
    shards = [cut(batch, shard, 3) for shard in range(3)]
    assert [part.indices.tolist() for part, _ in shards] == [order[0::3], order[1::3], order[2::3]]
    for part, is_empty in shards:
        assert not is_empty
        alone = examples[part.indices.tolist()]
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(part, alone, strict=True))
    part, is_empty = cut(batch, 8, 9)
    assert is_empty
    assert part.indices.tolist() == order[:1]


@pytest.mark.parametrize("count", [1, 3, 16])
def test_gradients_of_shards_are_those_of_the_whole_batch(composed: Composed, count: int) -> None:
    """Twelve pairs of unequal lengths: with 16 shards, some are empty."""
    terms = ("loss.terms.label_smoothing.weight=0.1", "loss.terms.coverage.weight=0.5")
    module, data = build_all(composed(*TINY, *SYNTHETIC, "data.train_lengths=[1,9]", *terms))
    module._trainer = Trainer(logger=False, **QUIET)
    for term in module.loss_terms.values():
        term.prepare(module)
    batch = data.examples("train")[list(range(12))]
    parameters = list(module.parameters())
    expected = module.losses(batch)
    whole = torch.autograd.grad(expected.total, parameters, materialize_grads=True)

    shards = Shards(count, seed=0)
    losses = shards.differentiate(module.losses, batch, parameters, number=0)
    assert losses.tokens == expected.tokens == int((batch.labels != PAD).sum())
    torch.testing.assert_close(losses.total, expected.total.detach())
    assert losses.logged.keys() == expected.logged.keys()
    for name, value in losses.logged.items():
        torch.testing.assert_close(value, expected.logged[name].detach())
    for gradient, reference in zip(shards.gradients, whole, strict=True):
        torch.testing.assert_close(gradient / losses.tokens, reference, rtol=1e-4, atol=1e-6)


def test_a_network_counts_a_batch_once_whatever_the_number_of_shards(composed: Composed) -> None:
    """An encoder may count the batches that it has seen, in a buffer."""
    counting = ("encoder=bag", "encoder._target_=custom_parts.CountingEncoder", "batching.shards=4")
    module, data = build_all(composed(*TINY, *SYNTHETIC, *counting))
    module._trainer = Trainer(logger=False, **QUIET)
    batch, parameters = data.examples("train")[list(range(6))], list(module.parameters())
    for number in range(2):
        module.shards.differentiate(module.losses, batch, parameters, list(module.buffers()), number=number)
        assert int(module.network.encoder.batches) == number + 1


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
    for shards in ("null", "2"):
        config = composed(*common, "batching.batch_size=4", f"batching.shards={shards}")
        accumulated = weights_after_one_step(config, accumulate_grad_batches=3)
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


def test_shards_refuse_settings_that_they_do_not_support(composed: Composed) -> None:
    shards = Shards(2, seed=0)
    trainer = Trainer(logger=False, **QUIET)
    shards.setup(trainer)
    for name, value, message in (
        ("world_size", 3, "batching.shards=2 is too few for 3 processes"),
        ("precision", "16-mixed", "set trainer.precision=bf16-mixed"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Trainer, name, value)
            with pytest.raises(UserError, match=message):
                shards.setup(trainer)


def test_number_of_devices_is_part_of_the_identity_only_without_shards(composed: Composed) -> None:
    one, two = "trainer.devices=1", "trainer.devices=2"
    assert identify(composed(one)) != identify(composed(two))
    shards = [identify(composed("batching.shards=4", devices)) for devices in (one, two)]
    assert shards[0] == shards[1]
    assert identify(composed("batching.shards=8", one)) not in (shards[0], identify(composed(one)))


NOISE = (
    "batching.shards=3",
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
    "callbacks.attention_figures.count=0",
    "logger=none",
)


def write_corpora(folder: Path) -> list[str]:
    """Write two corpora and a validation file; returns the overrides that train on them."""
    generator = random.Random(4)
    for name, size in (("news", 90), ("talks", 31), ("val", 9)):
        rows = [" ".join(generator.choices("abcdefg", k=1 + i % 9)) for i in range(size)]
        (folder / f"{name}.tsv").write_text("".join(f"{row}\t{row[::-1]}\n" for row in rows))
    return [
        *("data=pairs", "data.train={news: news.tsv, talks: talks.tsv}", "data.temperature=3"),
        *("data.val=val.tsv", "data.test=val.tsv", "tokenizer=whitespace", "paths.cache=cache"),
    ]


@pytest.mark.slow
def test_results_are_equal_in_memory_mapped_on_one_and_two_processes_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory on two processes; mapped on one; and mapped on two, then one, then two, interrupted twice."""
    runs = []
    starts = {"memory": [(2, 99)], "mapped": [(1, 99)], "changing": [(2, 3), (1, 9), (2, 99)]}
    for name, parts in starts.items():
        (folder := tmp_path / name).mkdir()
        words = (*TINY, *write_corpora(folder), "name=run")
        runs.append(train_in_parts(parts, *words, folder=folder, monkeypatch=monkeypatch))
        assert (folder / "cache/corpora").exists() == (name != "memory")
        monkeypatch.setattr(mapped, "IN_MEMORY", 20)
    assert_equal_outputs(*runs)


def train_in_parts(
    parts: list[tuple[int, int]], *overrides: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Train with `NOISE` on numbers of processes, each of which is interrupted after a number of steps."""
    for devices, stop in parts:

        def on_train_batch_end(callback: LastCheckpoint, trainer: Trainer, *_: Any, stop: int = stop) -> None:
            callback.interrupted = trainer.global_step >= stop

        monkeypatch.setattr(LastCheckpoint, "on_train_batch_end", on_train_batch_end)
        words = ("train", *overrides, *NOISE, f"trainer.devices={devices}")
        attnlab(*words, folder=folder, code=0 if stop == 99 else 75)
    (directory,) = folder.glob("outputs/*/*")
    return Run(directory)


def assert_equal_outputs(first: Run, *others: Run) -> None:
    """Compare the outputs of runs, one by one for readable failures."""
    expected = outputs_of(first)
    for other in map(outputs_of, others):
        for name in expected:
            assert other[name] == expected[name], name


def outputs_of(run: Run) -> dict[str, Any]:
    """Return the outputs of a run that must not depend on the number of processes."""
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
