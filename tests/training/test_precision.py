"""The choice of the precision."""

import logging
import os
import sys
from pathlib import Path

import pytest
from lightning.fabric.accelerators.mps import MPSAccelerator
from omegaconf import DictConfig, OmegaConf

from attnlab.config.compose import compose_run
from attnlab.errors import UserError
from attnlab.fast.machine import LIBRARY
from attnlab.files.run_directory import prepare_run
from attnlab.training import components, hardware, recipe
from attnlab.training.hardware import choose_precision, with_precision
from tiny_runs import SYNTHETIC, TINY

BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
"""Features of CPUs, as Linux names them, that multiply in bf16."""


def config_of(precision: str) -> DictConfig:
    return OmegaConf.create({"trainer": {"precision": precision, "accelerator": "cpu"}})


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")
def test_auto_is_bf16_where_the_cpu_has_units_for_it() -> None:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next(line for line in lines if line.startswith(("flags", "Features")))
    expected = "bf16-mixed" if BF16_FLAGS & {*flags.split()} else "32-true"
    assert choose_precision(config_of("auto").trainer) == expected


def test_first_choice_is_kept() -> None:
    for first in ("32-true", "bf16-mixed"):
        assert choose_precision(config_of("auto").trainer, recorded=first) == first
        assert choose_precision(config_of("16-mixed").trainer, recorded=first) == "16-mixed"


@pytest.mark.parametrize(("share", "slow"), [(0.5, False), (4.52, True)])
def test_slow_precision_is_a_warning_with_the_factor(
    share: float, slow: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "bf16_share", lambda: share)
    with caplog.at_level(logging.WARNING):
        with_precision(config_of("bf16-mixed"))
        with_precision(config_of("32-true"))
    assert ("takes 4.5 times as long" in caplog.text) == slow
    assert len(caplog.records) == slow


@pytest.mark.filterwarnings("ignore:GPU available but not used")
def test_automatic_accelerator_is_not_one_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MPSAccelerator, "is_available", lambda: True)
    trainer = components.configured_trainer(compose_run(["trainer.accelerator=auto"]), logger=False)
    assert type(trainer.accelerator).__name__ in ("CPUAccelerator", "CUDAAccelerator")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_run_records_its_choices_keeps_the_library_and_refuses_another_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ("logger=none", "trainer.max_epochs=1", "trainer.precision=auto")
    config = compose_run([*TINY, *SYNTHETIC, *settings, "callbacks.attention_figures.count=0"])
    config.decoder.size = 256  # its weights are large enough for oneDNN
    monkeypatch.setenv(LIBRARY, "mkl")
    run = prepare_run(config)
    first = choose_precision(config.trainer)
    recipe.train(config, run)
    assert run.read_result()["precision"] == first
    assert run.read_config().trainer.precision == "auto"
    assert [run.read_result()[name] for name in ("products", "threads")] == ["mkl", 1]
    run.write_result("interrupted", products="onednn")
    recipe.train(config, run)
    assert (run.read_result()["products"], os.environ[LIBRARY]) == ("onednn", "onednn")
    other = ({"bf16-mixed", "32-true"} - {first}).pop()
    run.write_result("interrupted", precision=other)
    with pytest.raises(UserError, match=f"was trained in {first}"):
        recipe.train(config, run)
