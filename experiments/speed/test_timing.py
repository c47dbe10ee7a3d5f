"""Timings and counts of operations: equal losses, hand values, and the report of a GPU on a CPU."""

from typing import Any

import gpu_report
import pytest
import timing
import torch
from flops import attention_flops, useful_flops
from omegaconf import DictConfig

from attnlab.config.compose import compose_run
from attnlab.decoding import search
from attnlab.errors import UserError
from attnlab.training import build, components
from attnlab.training.module import Seq2SeqModule
from attnlab.types import Batch

SMALL = ("embedding.size=5", "encoder.size=3", "decoder.size=7", "attention_size=3", "batching.batch_size=4")
ON_CPU = ("trainer.accelerator=cpu", "trainer.precision=32-true", "logger=none")
CPU = torch.device("cpu")


def make_module(
    *overrides: str, lengths: tuple[int, int] = (3, 4)
) -> tuple[Seq2SeqModule, list[Batch], DictConfig]:
    config = compose_run([*SMALL, *ON_CPU, *overrides])
    corpus, vocabularies = timing.random_corpus(*lengths, 11, 2, config)
    batches = timing.take_batches(config, corpus, vocabularies, 2, CPU)
    network = build.build_network(config, vocabularies)
    return components.build_module(config, network, vocabularies, corpus), batches, config


def test_random_sentences_have_the_requested_lengths() -> None:
    _, batches, _ = make_module(lengths=(6, 2))
    assert [tuple(batch.source.shape) for batch in batches] == [(4, 6), (4, 6)]
    assert all(batch.labels.shape == (4, 3) for batch in batches)  # EOS
    assert all(batch.source.min() >= 3 and batch.source.max() < 11 for batch in batches)


def test_plain_loss_equals_the_training_loss() -> None:
    module, batches, _ = make_module("decoder.layers=2")
    module.eval().double()
    losses = [timing.fast_loss(module, batches[0]), timing.plain_loss(module, batches[0])]
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-6)
    gradients = [torch.autograd.grad(loss, list(module.network.parameters())) for loss in losses]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-7)


def test_training_step_trains_a_copy() -> None:
    module, batches, config = make_module("optimizer=sgd", "optimizer.lr=0.5")
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    seen: list[float] = []

    def loss(copied: Seq2SeqModule, batch: Batch) -> torch.Tensor:
        value = timing.fast_loss(copied, batch)
        seen.append(value.item())
        return value

    step = timing.training_step(module, loss, timing.Settings.of(config))
    for _ in range(20):
        step(batches[0])
    assert seen[-1] < 0.9 * seen[0]
    torch.testing.assert_close(dict(module.state_dict()), before, rtol=0, atol=0)


def test_interleaved_rounds_skip_the_warm_up() -> None:
    turns: list[tuple[str, Any]] = []
    works = {name: lambda batch, name=name: turns.append((name, batch)) for name in ("a", "b")}
    times = timing.time_interleaved(works, [1, 2], rounds=2, device=CPU)
    assert turns == [("a", 1), ("b", 1), ("a", 2), ("b", 2)] * 3
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 2, "b": 2}


def test_peak_memory_is_the_largest_simultaneous_allocation() -> None:
    def work(_: Batch) -> None:
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        torch.empty(250)
        del second

    assert timing.profile_once(work, make_module()[1][0], CPU) == (6000, None)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("trainer.precision=16-mixed", "32-true and bf16-mixed"),
        ("trainer.gradient_clip_algorithm=value", "clip gradients by norm"),
    ],
)
def test_unsupported_settings_are_rejected(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        timing.Settings.of(compose_run([word]))


def test_rows_of_measurements() -> None:
    module, batches, config = make_module("search.max_length=3")
    settings = timing.Settings.of(config)
    losses = {"train": timing.fast_loss, "train, plain": timing.plain_loss}
    fast, plain, product = timing.measure_training(module, losses, batches[:1], settings, rounds=1)
    assert (fast.work, plain.work, product.work) == ("train", "train, plain", "matrix product")
    assert fast.tokens == plain.tokens == 4 * (3 + 5)
    assert fast.flops == plain.flops
    assert (fast.peak_memory or 0) > 4 * 5 * 11 * 4  # at least the logits are allocated
    assert product.flops == 2 * 1024**3
    greedy, beam = timing.measure_search(module, batches, settings, rounds=1)
    assert (greedy.work, beam.work) == ("greedy", "beam 5")
    greedy_outputs = [search.greedy(module.network, batch, max_length=3).tokens for batch in batches]
    tokens = [sum(len(best[0]) + 1 for best in outputs) for outputs in greedy_outputs]
    assert greedy.tokens == sum(tokens) / len(tokens)


def test_attention_flops_equal_its_equations() -> None:
    memory, state, energy = 2 * 3, 7, 3
    network = make_module("attention=additive")[0].network
    # U h_j · W s · vᵀ tanh(·) and α_j h_j
    assert attention_flops(network) == (2 * memory * energy, 2 * state * energy, 2 * energy + 2 * memory)
    assert attention_flops(make_module("attention=none")[0].network) == (0, 0, 0)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_network_flops_equal_the_sum_over_layers(cell: str) -> None:
    overrides = (f"encoder.cell={cell}", f"decoder.cell={cell}", "decoder.layers=2", "readout.parts=[state]")
    module, (batch, _), _ = make_module(*overrides)  # 4 sentences of 3 and 4 tokens, and EOS
    gates = {"lstm": 4, "gru": 3}[cell]
    source, target, pairs = 4 * 3, 4 * 5, 4 * 3 * 5
    units, memory, state, energy, embedding, vocabulary = 3, 2 * 3, 7, 3, 5, 11
    expected = {
        "encoder": 2 * source * 2 * gates * units * (embedding + units),
        "keys": 2 * source * memory * energy,
        "query": 2 * target * state * energy,
        "score": 2 * pairs * energy,
        "context": 2 * pairs * memory,
        "layer 1": 2 * target * gates * state * (embedding + memory + state),
        "layer 2": 2 * target * gates * state * 2 * state,
        "vocabulary": 2 * target * state * vocabulary,
        "bridge": 4 * 2 * sum(p.numel() for p in module.network.bridge.parameters() if p.dim() > 1),
    }
    assert useful_flops(module.network, batch) == pytest.approx(sum(expected.values()))


def test_padding_is_not_counted() -> None:
    module, (short, _), _ = make_module()
    (long, _) = make_module(lengths=(7, 2))[1]
    network = module.network
    source, target = (torch.zeros(8, width, dtype=torch.long) for width in (7, 6))
    for rows, batch in ((slice(0, 4), short), (slice(4, 8), long)):
        source[rows, : batch.source.size(1)] = batch.source
        target[rows, : batch.target.size(1)] = batch.target
    lengths = torch.cat([short.source_lengths, long.source_lengths])
    both = short._replace(source=source, target=target, source_lengths=lengths, indices=torch.arange(8))
    alone = useful_flops(network, short) + useful_flops(network, long)
    assert useful_flops(network, both) == pytest.approx(alone)


def test_operations_of_the_attention_of_all_layers_are_counted() -> None:
    counts = []
    for layers in (1, 2, 4):
        sizes = ("decoder.size=8", "decoder.heads=2", "attention_size=8", f"decoder.layers={layers}")
        module, batches, _ = make_module("decoder=transformer", *sizes)
        counts.append(useful_flops(module.network, batches[0]))
    one, two, four = counts
    assert 0 < two - one == pytest.approx((four - two) / 2)


@pytest.mark.slow
def test_gpu_report_on_the_cpu() -> None:
    """Run the code of the report at tiny sizes; a CPU may lack bf16."""
    tiny = [*SMALL, "encoder.layers=1", "decoder.layers=2", *ON_CPU, "search.max_length=4"]
    for name in ("gnmt", "luong"):
        config = compose_run([*gpu_report.SYSTEMS[name], *tiny])
        rows = gpu_report.measure_system(config, lengths=(3, 4), vocabulary=11, batches=1, rounds=1)
        by_name = {row.work: row for row in rows}
        assert len(by_name) == 8
        fused, bound = by_name["train, fused"], by_name["train, torch's LSTMs, no attention"]
        assert fused.tokens == bound.tokens == 4 * (3 + 5)
        assert fused.flops == by_name["train, published loop"].flops
        assert bound.flops is None
        assert by_name["beam 5, fused"].tokens == by_name["beam 5, published loop"].tokens <= 4 * 5
        assert all(row.tokens > 0 and row.peak_memory for row in rows if row.work != "matrix product")


@pytest.mark.slow
def test_comparison_of_devices_on_the_cpu() -> None:
    settings = ("batching.batch_size=3", "trainer.precision=32-true", *SMALL)
    same = gpu_report.compare_with_cpu(compose_run(["attention=general", *settings]), CPU)
    assert same == (0, 0, True, True)
    assert gpu_report.compare_with_cpu(compose_run(["attention=mocha", *settings]), CPU).gradient is None
    assert {"attention=additive", "encoder=transformer", "decoder=luong"} <= {*gpu_report.parity_settings()}


@pytest.mark.slow
def test_processes_train_at_the_same_time() -> None:
    config = compose_run([*SMALL, *ON_CPU])
    speeds = gpu_report.measure_processes(config, 2, lengths=(3, 4), vocabulary=11, batches=1, rounds=1)
    assert len(speeds) == 2
    assert all(speed > 0 for speed in speeds)
