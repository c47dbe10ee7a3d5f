"""Hyper-parameter search: distributions, equal budgets, and resumption."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig, OmegaConf
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from attnlab.errors import InUseError, UserError
from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run, run_of
from attnlab.jobs.grid import split_space
from attnlab.jobs.hyperparameter_search import search, suggest_value
from commands import ATTNLAB, TINY_REVERSE, attnlab, clean_environment
from compositions import compose_values
from daemons import wait_for
from forked import ForkedProcess

DRAWN = {
    "optimizer.lr=interval(0.001,0.1)": FloatDistribution(0.001, 0.1),
    "optimizer.lr=tag(log,interval(1e-4,1e-1))": FloatDistribution(1e-4, 1e-1, log=True),
    "encoder.size=int(interval(8,64))": IntDistribution(8, 64),
    "encoder.size=tag(log,int(interval(8,64)))": IntDistribution(8, 64, log=True),
    "decoder.layers=range(1,4)": IntDistribution(1, 3),
    "encoder.size=range(64,8,-8)": IntDistribution(16, 64, step=8),
    "embedding.dropout=range(0.0,0.5,0.1)": FloatDistribution(0.0, 0.4, step=0.1),
    "attention=none,dot": CategoricalDistribution(["none", "dot"]),
    "variant=choice(a b,true,3)": CategoricalDistribution(["a\\ b", "True", "3"]),
}


def sweep(override: str) -> tuple[str, Override]:
    (override,) = OverridesParser.create().parse_overrides([override])
    return override.get_key_element(), override


@pytest.mark.parametrize("override", DRAWN)
def test_sweep_gives_the_expected_distribution(override: str) -> None:
    trial = optuna.create_study().ask()
    value = suggest_value(trial, *sweep(override))
    (distribution,) = trial.distributions.values()
    assert distribution == DRAWN[override]
    assert value in trial.params.values()


@pytest.mark.parametrize(
    "override", ["encoder.size=interval(64,8)", "encoder.size=range(3,3)", "attention=glob(*)"]
)
def test_sweep_that_cannot_be_searched_is_named(override: str) -> None:
    with pytest.raises(UserError, match=re.escape(override)):
        suggest_value(optuna.create_study().ask(), *sweep(override))


def test_compared_sweeps_are_not_searched_and_the_command_line_replaces_those_of_a_study() -> None:
    params = {"attention": "none,dot", "optimizer.lr": "interval(0,1)", "seed": "0"}
    space, others = split_space(params, ["optimizer.lr=0.1,0.2", "+x=interval(1,2)"], ["attention"])
    assert {key: each.get_value_string() for key, each in space.items()} == {
        "optimizer.lr": "0.1,0.2",
        "+x": "interval(1,2)",
    }
    assert others == ["attention=none,dot", "seed=0"]


LR = dict([sweep("optimizer.lr=interval(0.0,1.0)"), sweep("batching.batch_size=32,64")])
SAMPLER = {"_target_": "optuna.samplers.TPESampler", "seed": 1, "n_startup_trials": 2}


HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "a") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print(flush=True)
    time.sleep(60)
"""
"""Another process that searches."""


class KilledError(Exception):
    """Stands for the end of the process."""


class Formula:
    """A search of a formula in place of trainings.

    Attributes:
        jobs: the variant and the values of every trained trial.
        kill_at: number of trials after which the process is killed.
    """

    def __init__(self, folder: Path, n_jobs: int = 1) -> None:
        self.folder = folder
        self.n_jobs = n_jobs
        self.jobs: list[str] = []
        self.kill_at: int | None = None

    def compose(self, job: Sequence[str]) -> DictConfig:
        config = compose_values(*job, f"paths.output={self.folder}")
        OmegaConf.resolve(config)
        return config

    def train(self, jobs: Sequence[Sequence[str]]) -> list[JobReturn]:
        returns = []
        for job in jobs:
            if len(self.jobs) == self.kill_at:
                raise KilledError
            config = self.compose(job)
            self.jobs.append(" ".join([config.variant, *job[-2:]]))
            score = config.optimizer.lr - (config.attention._target_.endswith("Dot"))
            returns.append(JobReturn(cfg=config, status=JobStatus.COMPLETED, _return_value=score))
        return returns

    def run(self, n_trials: int, variants: Sequence[str] = ("attention=none", "attention=dot")) -> Any:
        return search(
            [[variant] for variant in variants],
            LR,
            compose=self.compose,
            train=self.train,
            sampler=OmegaConf.create(SAMPLER),
            n_trials=n_trials,
            n_jobs=self.n_jobs,
        )


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_killed_search_repeats_no_trial_and_draws_the_same_values(tmp_path: Path, n_jobs: int) -> None:
    whole, killed = Formula(tmp_path / "whole", n_jobs), Formula(tmp_path / "killed", n_jobs)
    best = whole.run(5)
    assert len(whole.jobs) == len({*whole.jobs}) == 10  # five of each variant
    assert [sum(job.startswith(name) for job in whole.jobs) for name in ("none", "dot")] == [5, 5]
    for moment in (0, 3, 4, 7):
        killed.kill_at = moment
        with pytest.raises(KilledError):
            killed.run(5)
        del killed.jobs[len(killed.jobs) // (2 * n_jobs) * (2 * n_jobs) :]  # scores that were not stored
    killed.kill_at = None
    assert killed.run(5) == best
    assert sorted(killed.jobs) == sorted(whole.jobs)
    before = len(killed.jobs)
    assert killed.run(5) == best  # no trial is left
    assert len(killed.jobs) == before
    killed.run(6)
    assert len(killed.jobs) == before + 2


@pytest.mark.slow
def test_failed_trials_count_and_a_second_process_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formula = Formula(tmp_path)

    def fail(jobs: Sequence[Sequence[str]]) -> list[JobReturn]:
        configs = [formula.compose(job) for job in jobs]
        for config in configs:
            run = run_of(config)
            run.directory.mkdir(parents=True, exist_ok=True)
            run.write_result("failed", error="diverged")
        return [JobReturn(cfg=config, status=JobStatus.COMPLETED) for config in configs]

    train, formula.train = formula.train, fail  # type: ignore[method-assign]
    with pytest.raises(UserError, match="none: all trials failed, see"):
        formula.run(2, ["attention=none"])
    formula.train = train  # type: ignore[method-assign]
    with pytest.raises(UserError, match="none: all trials failed"):
        formula.run(2, ["attention=none"])
    assert formula.jobs == []
    (best,) = formula.run(3, ["attention=none"])
    assert len(formula.jobs) == 1
    assert best[-2:] == formula.jobs[0].split()[1:]
    lock = tmp_path / "reverse-trials" / "optuna.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(InUseError, match="in use by another search"):
            formula.run(3, ["attention=none"])
        other.kill()


SEARCH = (
    "-m",
    "hydra/sweeper=optuna",
    *TINY_REVERSE,
    "data.train_size=800",
    "trainer.max_epochs=3",
    "scheduler=constant",
    "attention=none,dot",
    "optimizer.lr=tag(log,interval(1e-3,1e-1))",
    "hydra.sweeper.compare=[attention]",
    "hydra.sweeper.n_trials=2",
    "hydra.sweeper.seeds=1",
    "hydra.launcher.slots=2",
)


@pytest.mark.slow
def test_search_killed_in_a_training_equals_one_that_was_not(tmp_path: Path) -> None:
    overrides = [word for word in SEARCH if word != "optimizer.lr=0.01"]
    folder = tmp_path / "outputs" / "reverse-trials"
    process = ForkedProcess(
        [ATTNLAB, "train", *overrides], cwd=tmp_path, env=clean_environment(), start_new_session=True
    )
    wait_for(lambda: list(folder.glob("*/checkpoints/last.ckpt")))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    completed = attnlab("train", *overrides, folder=tmp_path)

    storage = f"sqlite:///{folder}/optuna.db"
    names = optuna.get_all_study_names(storage)
    studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
    assert [[trial.state for trial in study.trials] for study in studies] == [[TrialState.COMPLETE] * 2] * 2
    rates = [[trial.params["optimizer.lr"] for trial in study.trials] for study in studies]
    assert rates[0] == rates[1]  # random values of the first trials, equal for both variants
    trials = [Run(path) for path in folder.glob("*-seed0-*")]
    assert sorted(run.read_config().optimizer.lr for run in trials) == sorted([*rates[0], *rates[1]])
    logs = [run.log.read_text() for run in trials]
    resumed = [log.count("resuming from step") for log in logs]
    assert sum(resumed) >= 1
    assert [log.count(" training, ") for log in logs] == [1 + times for times in resumed]
    for run in trials:
        steps = [step for step, _ in read_metrics(run.metrics)["train/loss"]]
        assert steps == sorted(set(steps))

    finals = {run.read_config().variant: run for run in map(Run, folder.parent.glob("reverse/*-seed1-*"))}
    assert finals.keys() == {"none", "dot"}
    for name, run in finals.items():
        losses = {
            trial.read_result()["metrics"]["val/loss"]: trial.read_config().optimizer.lr
            for trial in trials
            if trial.read_config().variant == name
        }
        assert run.read_config().optimizer.lr == losses[min(losses)]
        assert f"{name}: 2 trials, 2 finished" in completed.stdout
    assert "\ntrial 1/2  dot  optimizer.lr=" in completed.stdout


@pytest.mark.slow
def test_command_of_the_best_values_trains_them(tmp_path: Path) -> None:
    overrides = [*TINY_REVERSE, "trainer.max_epochs=1", "optimizer=sgd", "optimizer.lr=1e38,0.1"]
    overrides += ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.sampler.seed=1"]
    overrides.remove("optimizer.lr=0.01")
    completed = attnlab("train", "-m", *overrides, folder=tmp_path)  # trials that diverge are no failure
    assert re.search(r"The (loss|gradient norm) is", completed.stdout + completed.stderr)
    (command,) = [line for line in completed.stdout.splitlines() if line.startswith("best  attnlab train ")]
    words = shlex.split(command)[2:]
    assert words[-1] == "optimizer.lr=0.1"
    attnlab(*words, folder=tmp_path)
    (run,) = map(Run, tmp_path.glob("outputs/reverse/*-seed0-*"))
    assert run.read_config().optimizer.lr == 0.1
