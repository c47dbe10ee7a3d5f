import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from attnlab.decoding import search
from attnlab.errors import UserError
from attnlab.training import build, components
from attnlab.training.benchmark import timing
from attnlab.training.module import Seq2SeqModule
from attnlab.types import Batch
from commands import TINY_REVERSE, attnlab
from networks import make_network, random_batch

SMALL = ("embedding.size=5", "encoder.size=3", "decoder.size=7", "attention_size=3", "batching.batch_size=4")
CPU = torch.device("cpu")
SPEED = Path(__file__).parents[3] / "experiments" / "speed"


@pytest.fixture
def gpu_report(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script of experiments/speed that measures a GPU."""
    monkeypatch.syspath_prepend(SPEED)
    return importlib.import_module("gpu_report")


def make_module(
    composed: Callable[..., DictConfig], *overrides: str, lengths: tuple[int, int] = (3, 4)
) -> tuple[Seq2SeqModule, list[Batch], DictConfig]:
    config = composed(*SMALL, "trainer.accelerator=cpu", *overrides)
    corpus, vocabularies = timing.random_corpus(*lengths, 11, 2, config)
    batches = timing.take_batches(config, corpus, vocabularies, 2, CPU)
    network = build.build_network(config, vocabularies)
    return components.build_module(config, network, vocabularies, corpus), batches, config


def test_random_sentences_have_the_requested_lengths(composed: Callable[..., DictConfig]) -> None:
    _, batches, _ = make_module(composed, lengths=(6, 2))
    assert [tuple(batch.source.shape) for batch in batches] == [(4, 6), (4, 6)]
    assert all(batch.labels.shape == (4, 3) for batch in batches)  # EOS
    assert all(batch.source.min() >= 3 and batch.source.max() < 11 for batch in batches)
    _, batches, _ = make_module(composed, "batching.source_eos=true")
    assert batches[0].source.shape == (4, 4)


def test_plain_loss_equals_the_training_loss(composed: Callable[..., DictConfig]) -> None:
    module, _, _ = make_module(composed)
    module.network = make_network(layers=2).double()
    batch = random_batch([3, 7, 5], [4, 2, 6])
    losses = [timing.fast_loss(module, batch), timing.plain_loss(module, batch)]
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-6)
    gradients = [torch.autograd.grad(loss, list(module.network.parameters())) for loss in losses]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-7)


def test_training_step_trains_a_copy(composed: Callable[..., DictConfig]) -> None:
    module, batches, config = make_module(composed, "optimizer=sgd", "optimizer.lr=0.5")
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
    batches: list[Any] = [1, 2]
    times = timing.time_interleaved(works, batches, rounds=2, device=CPU)
    assert turns == [("a", 1), ("b", 1), ("a", 2), ("b", 2)] * 3
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 2, "b": 2}


def test_peak_memory_is_the_largest_simultaneous_allocation() -> None:
    def work(_: Batch) -> None:
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        torch.empty(250)
        del second

    assert timing.profile_once(work, random_batch([1]), CPU) == (6000, None)


def test_bf16_matrix_products(composed: Callable[..., DictConfig]) -> None:
    settings = timing.Settings.of(composed("trainer.precision=bf16-mixed", "trainer.accelerator=cpu"))
    with settings.arithmetic():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == settings.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("trainer.precision=16-mixed", "32-true and bf16-mixed"),
        ("trainer.gradient_clip_algorithm=value", "clips gradients by norm"),
    ],
)
def test_unsupported_settings_are_rejected(
    composed: Callable[..., DictConfig], word: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        timing.Settings.of(composed(word))


def test_rows_of_measurements(composed: Callable[..., DictConfig]) -> None:
    module, batches, config = make_module(composed, "search.max_length=3")
    settings = timing.Settings.of(config)
    chosen = timing.Settings.of(composed("trainer.accelerator=auto")).device.type
    assert (settings.device.type, chosen) == ("cpu", "cuda" if torch.cuda.is_available() else "cpu")
    losses = {"train": timing.fast_loss, "train, plain": timing.plain_loss}
    fast, plain, product = timing.measure_training(module, losses, batches[:1], settings, rounds=1)
    assert (fast.work, plain.work, product.work) == ("train", "train, plain", "matrix product")
    assert fast.tokens == plain.tokens == 4 * (3 + 5)
    assert fast.flops == plain.flops
    assert (fast.peak_memory or 0) > 4 * 5 * 11 * 4  # at least the logits are allocated
    assert product.flops == 2 * 1024**3
    greedy, beam = timing.measure_search(module, batches, settings, rounds=1)
    assert (greedy.work, beam.work) == ("greedy", "beam 5")
    assert 4 <= greedy.tokens <= 4 * 4
    greedy_outputs = [search.greedy(module.network, batch, max_length=3).tokens for batch in batches]
    tokens = [sum(len(best[0]) + 1 for best in outputs) for outputs in greedy_outputs]
    assert greedy.tokens == sum(tokens) / len(tokens)


@pytest.mark.slow
def test_bench_command_prints_and_saves_a_table(tmp_path: Path) -> None:
    options = ["--rounds", "1", "--batches", "2", "--against", "plain", "--json", "speed.json"]
    done = attnlab("bench", "trainer.precision=bf16-mixed", *options, *TINY_REVERSE, folder=tmp_path)
    assert done.stderr == ""
    assert "bf16-mixed · CPU, 1 threads" in done.stdout
    saved = json.loads((tmp_path / "speed.json").read_text())
    works = [row["work"] for row in saved["rows"]]
    assert works == ["train", "train, plain", "matrix product", "greedy", "beam 5"]
    assert all(len(row["seconds"]) == 1 for row in saved["rows"])
    assert len(saved["batches"]) == 2
    assert "outputs" not in [path.name for path in tmp_path.iterdir()]
    done = attnlab("bench", "attention=additve", folder=tmp_path, code=2)
    assert done.stdout == ""
    assert "Unknown attention 'additve'. Did you mean 'additive'?" in done.stderr


def test_lstms_of_the_gpu_report_have_the_sizes_of_the_network(
    composed: Callable[..., DictConfig], gpu_report: Any
) -> None:
    network = make_module(composed)[0].network
    lstms = gpu_report.LSTMs(network)
    assert lstms.encoder(torch.zeros(1, 2, 5))[0].shape == (1, 2, network.encoder.memory_size)


@pytest.mark.slow
def test_gpu_report_on_the_cpu(composed: Callable[..., DictConfig], gpu_report: Any) -> None:
    """Run the code of the report at tiny sizes; a CPU may lack bf16."""
    systems = gpu_report.SYSTEMS
    on_cpu = ["trainer.accelerator=cpu", "trainer.precision=32-true"]
    tiny = [*SMALL, "encoder.layers=1", "decoder.layers=2", *on_cpu]
    for name in ("gnmt", "luong"):
        config = composed(*systems[name], *tiny, "search.max_length=4")
        rows = gpu_report.measure_system(config, lengths=(3, 4), vocabulary=11, batches=1, rounds=1)
        by_name = {row.work: row for row in rows}
        assert len(by_name) == 8
        fused, bound = by_name["train, fused"], by_name["train, torch's LSTMs, no attention"]
        assert fused.tokens == bound.tokens == 4 * (3 + 5)
        assert fused.flops == by_name["train, published loop"].flops
        assert bound.flops is None
        assert all(row.tokens > 0 for work, row in by_name.items() if work != "matrix product")
        assert by_name["beam 5, fused"].tokens == by_name["beam 5, published loop"].tokens <= 4 * 5
        assert all(row.peak_memory for work, row in by_name.items() if work != "matrix product")


def test_comparison_of_devices_on_the_cpu(composed: Callable[..., DictConfig], gpu_report: Any) -> None:
    device = torch.device("cpu")
    settings = ("batching.batch_size=3", "trainer.precision=32-true", *SMALL)
    assert gpu_report.compare_with_cpu(composed("attention=general", *settings), device) == (0, 0, True, True)
    assert gpu_report.compare_with_cpu(composed("attention=mocha", *settings), device).gradient is None
    assert {"attention=additive", "encoder=transformer", "decoder=gnmt"} <= {*gpu_report.parity_settings()}


@pytest.mark.slow
def test_processes_train_at_the_same_time(composed: Callable[..., DictConfig], gpu_report: Any) -> None:
    config = composed(*SMALL, "trainer.accelerator=cpu", "trainer.precision=32-true")
    found = gpu_report.measure_processes(config, 2, lengths=(3, 4), vocabulary=11, batches=1, rounds=1)
    assert len(found) == 2
    assert all(speed > 0 for speed in found)
