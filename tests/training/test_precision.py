"""The choice of the precision, for given features of a CPU."""

import logging
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest
from lightning.fabric.accelerators.mps import MPSAccelerator

from attnlab.config.compose import compose_run
from attnlab.errors import UserError
from attnlab.files.run_directory import prepare_run
from attnlab.training import components, precision, recipe
from attnlab.training.precision import bf16_slowdown, resolve_precision, warn_of_slow_precision
from tiny_runs import SYNTHETIC, TINY

XEON, EPYC = {"avx512f", "avx512_vnni"}, {"avx512f", "avx512_bf16"}


def test_auto_is_bfloat16_on_cpus_with_its_units_only() -> None:
    assert resolve_precision("auto", "cpu", EPYC) == "bf16-mixed"
    assert resolve_precision("auto", "cpu", {"amx_bf16"}) == "bf16-mixed"
    assert resolve_precision("auto", "cpu", XEON) == "32-true"
    assert resolve_precision("16-mixed", "cpu", EPYC) == "16-mixed"


def test_first_choice_is_kept() -> None:
    assert resolve_precision("auto", "cpu", EPYC, recorded="32-true") == "32-true"
    assert resolve_precision("32-true", "cpu", EPYC, recorded="bf16-mixed") == "32-true"
    assert resolve_precision("auto", "cpu", XEON, recorded="bf16-mixed") == "bf16-mixed"


def test_one_warning_with_the_factor_on_a_cpu_without_units(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_slow_precision("bf16-mixed", "cpu", XEON)
        warn_of_slow_precision("32-true", "cpu", XEON)
        warn_of_slow_precision("bf16-mixed", "cpu", EPYC)
    (record,) = caplog.records
    assert "this CPU has no bf16 units" in record.getMessage()
    assert bf16_slowdown() > 0


@pytest.mark.filterwarnings("ignore:GPU available but not used")
def test_automatic_accelerator_is_not_one_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MPSAccelerator, "is_available", lambda: True)
    trainer = components.configured_trainer(compose_run(["trainer.accelerator=auto"]), logger=False)
    assert type(trainer.accelerator).__name__ in ("CPUAccelerator", "CUDAAccelerator")


@pytest.mark.slow
def test_run_records_its_precision_and_refuses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = compose_run([*TINY, *SYNTHETIC, "logger=none", "trainer.max_epochs=1", "trainer.precision=auto"])
    run = prepare_run(config)
    first = components.choose_precision(config)
    recipe.train(config, run)
    assert run.read_result()["precision"] == first
    assert run.read_config().trainer.precision == "auto"
    other = ({"bf16-mixed", "32-true"} - {first}).pop()
    run.write_result("interrupted", precision=other)
    with pytest.raises(UserError, match=f"was trained in {first}"):
        recipe.train(config, run)


def test_slowdown_is_the_ratio_of_the_shortest_times(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = [2.0, 9.0, 1.0, 5.0, 3.0, 4.0, 2.0, 7.0]  # of fp32 and bf16 in turn: at least 1 and 4
    ends = [*accumulate(durations)]
    clock = iter([time for pair in zip([0.0, *ends[:-1]], ends, strict=True) for time in pair])
    monkeypatch.setattr(precision, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert precision.bf16_slowdown() == 4
