"""Hyper-parameter search: distributions, pruning and resumption."""

import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from attnlab.cli import tune
from attnlab.config.compose import compose_run
from attnlab.errors import INTERRUPTED, UserError
from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run, prepare_run
from attnlab.jobs import hyperparameter_search, search_plan
from commands import ATTNLAB, TINY_REVERSE, attnlab, clean_environment
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
    value = search_plan.suggest_value(trial, *sweep(override))
    (distribution,) = trial.distributions.values()
    assert distribution == DRAWN[override]
    assert value in trial.params.values()


@pytest.mark.parametrize(
    "override", ["encoder.size=interval(64,8)", "encoder.size=range(3,3)", "attention=glob(*)"]
)
def test_sweep_that_cannot_be_searched_is_named(override: str) -> None:
    with pytest.raises(UserError, match=re.escape(override)):
        search_plan.suggest_value(optuna.create_study().ask(), *sweep(override))


@pytest.mark.slow
def test_plan_separates_search_space_and_fixed_settings(tmp_path: Path) -> None:
    overrides = ["tune.trials=7", "attention=none,dot", "embedding.dropout=0.0,0.5", "seed=3"]
    plan = search_plan.make_plan([*overrides, f"paths.output={tmp_path}"])
    assert plan.overrides == ["seed=3", f"paths.output={tmp_path}", "name=reverse-tune"]
    assert list(plan.space) == ["attention", "embedding.dropout"]
    assert plan.space["embedding.dropout"].get_value_string() == "0.0,0.5"
    assert plan.tune.trials == 7
    assert plan.database == tmp_path / "reverse-tune" / "tune.db"
    assert plan.trial_overrides({"optimizer.lr": 1e-05, "attention": "dot"})[-2:] == [
        "optimizer.lr=1e-05",
        "attention=dot",
    ]
    longer = search_plan.make_plan([*overrides, f"paths.output={tmp_path}", "tune.trials=9"])
    other = search_plan.make_plan([*overrides, f"paths.output={tmp_path}", "optimizer.lr=0.1,0.2"])
    assert longer.identity == plan.identity != other.identity


@pytest.mark.slow
def test_command_without_a_sweep_searches_the_default_space(tmp_path: Path) -> None:
    plan = search_plan.make_plan(["data.task=sort", f"paths.output={tmp_path}"])
    assert list(plan.space) == ["optimizer.lr", "embedding.dropout", "batching.batch_size"]
    assert plan.summary == (
        "searching with 20 trials (tune.trials): optimizer.lr=tag(log, interval(1e-4, 1e-1)), "
        "embedding.dropout=interval(0.0, 0.5), batching.batch_size=32,64,128 "
        "(tune.space; a sweep such as attention=none,dot replaces it)"
    )
    given = search_plan.make_plan(["seed=1,2", "tune.trials=3", f"paths.output={tmp_path}"])
    assert given.summary == "searching with 3 trials (tune.trials): seed=1,2"


@pytest.mark.slow
def test_setting_of_swept_options_only_can_be_searched(tmp_path: Path) -> None:
    overrides = ["attention=local_m,local_p", "attention.window=2,4", f"paths.output={tmp_path}"]
    plan = search_plan.make_plan(overrides)  # the default attention has no window
    assert list(plan.space) == ["attention", "attention.window"]


WORKER = """
import sys, time
with open(sys.argv[1], "w") as file:
    print("epoch,step,metric,value", file=file)
    for epoch in range(1000):
        print(f"{epoch},{epoch},val/loss,{epoch}.0", file=file, flush=True)
        time.sleep(0.02)
"""
"""A training whose loss rises for 20 seconds."""


def test_worker_is_stopped_by_the_pruner(tmp_path: Path) -> None:
    pruner = optuna.pruners.ThresholdPruner(upper=2.5)
    trial = optuna.create_study(pruner=pruner).ask()
    run = Run(tmp_path)
    watch = hyperparameter_search.TrialPruning(trial, run, "val/loss", interval=0.05)
    with subprocess.Popen([sys.executable, "-c", WORKER, str(run.metrics)]) as worker:
        assert watch.wait(worker) == -signal.SIGTERM
    assert watch.pruned
    assert trial.study.trials[0].intermediate_values == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0}
    assert watch.reported == 4


def test_trial_killed_before_the_pruner_was_asked_is_pruned_at_the_same_step(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/tune.db"
    study = optuna.create_study(storage=storage, pruner=optuna.pruners.ThresholdPruner(upper=2.5))
    trial = study.ask()
    for step in range(4):
        trial.report(float(step), step)  # the pruner would stop the last one
    run = Run(tmp_path)
    with run.metrics.open("w") as file:
        file.write("epoch,step,metric,value\n")
        file.writelines(f"{epoch},{epoch},val/loss,{epoch}.0\n" for epoch in range(9))
    resumed = optuna.load_study(study_name=study.study_name, storage=storage, pruner=study.pruner)
    watch = hyperparameter_search.TrialPruning(optuna.Trial(resumed, trial._trial_id), run, "val/loss")
    assert watch.should_prune()
    assert watch.reported == 4
    assert list(resumed.trials[0].intermediate_values) == [0, 1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("upper", [2.5, 99.0])
def test_run_that_finished_before_it_was_read_is_pruned_all_the_same(upper: float, tmp_path: Path) -> None:
    """Pruning depends on the values of a trial only, not on the time at which they are read."""
    settings = ["tune.trials=1", f"paths.output={tmp_path}", "attention=dot,none"]
    plan = search_plan.make_plan(settings)
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=upper))
    trial = study.ask()
    attention = search_plan.suggest_value(trial, "attention", plan.space["attention"])
    run = prepare_run(compose_run(plan.trial_overrides({"attention": attention})))
    run.metrics.write_text(
        "epoch,step,metric,value\n0,9,val/loss,2.0\n1,19,val/loss,3.0\n2,29,val/loss,1.0\n"
    )
    run.write_result("finished", metrics={"val/loss": 1.0})
    assert hyperparameter_search.run_trial(trial, plan) == 0
    expected = (TrialState.PRUNED, 3.0, 2) if upper < 3 else (TrialState.COMPLETE, 1.0, 3)
    (stored,) = study.trials
    assert (stored.state, stored.value, len(stored.intermediate_values)) == expected
    assert run.read_result()["status"] == "finished"


PRUNED = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
signal.signal(signal.SIGINT, signal.SIG_IGN)
with open(sys.argv[1], "w") as file:
    file.write("epoch,step,metric,value\\n0,9,val/loss,3.0\\n")
time.sleep(60)
"""
"""A training that ends when the pruner stops it, and not at Ctrl-C."""


def test_ctrl_c_while_a_trial_is_pruned_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(optuna.pruners.ThresholdPruner):
        def prune(self, *arguments: Any) -> bool:
            signal.raise_signal(signal.SIGINT)
            return super().prune(*arguments)

    def start(run: Run, **_: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-SEc", PRUNED, str(run.metrics)], start_new_session=True)

    monkeypatch.setattr(hyperparameter_search.worker_process, "start_worker", start)
    plan = search_plan.make_plan(["attention=dot,none", f"paths.output={tmp_path}"])
    study = optuna.create_study(pruner=Interrupting(upper=2.5))
    assert hyperparameter_search.run_trial(study.ask(), plan) == INTERRUPTED
    assert [trial.state for trial in study.trials] == [TrialState.PRUNED]


def search_formula(plan: search_plan.SearchPlan, *, stop_after: int | None = None) -> list[dict[str, Any]]:
    """Search with a formula instead of trainings; interrupt it in the trial `stop_after`."""
    study = hyperparameter_search.open_study(plan)
    for trial in hyperparameter_search.remaining_trials(study, plan):
        parameters = {
            key: search_plan.suggest_value(trial, key, override) for key, override in plan.space.items()
        }
        if trial.number == stop_after:
            break
        study.tell(trial, parameters["optimizer.lr"] - (parameters["attention"] == "dot"))
    return [trial.params for trial in study.trials]


@pytest.mark.slow
def test_resumed_search_suggests_the_same_parameters(tmp_path: Path) -> None:
    overrides = [
        "optimizer.lr=interval(0.0,1.0)",
        "attention=none,dot",
        "tune.trials=6",
        "+tune.sampler.n_startup_trials=2",
    ]
    whole = search_formula(search_plan.make_plan([*overrides, f"paths.output={tmp_path}/whole"]))
    assert len(whole) == 6
    assert len({tuple(parameters.values()) for parameters in whole}) == 6
    plan = search_plan.make_plan([*overrides, f"paths.output={tmp_path}/killed"])
    for stop in (0, 3, 3, 5):
        assert search_formula(plan, stop_after=stop) == whole[: stop + 1]
    assert search_formula(plan) == whole
    assert search_formula(plan) == whole  # no trial is left
    assert {trial.state for trial in hyperparameter_search.open_study(plan).trials} == {TrialState.COMPLETE}


def search_in_parallel(plan: search_plan.SearchPlan, folder: Path) -> None:
    """Search with a formula; the first process to reach trial 3 hangs until it is killed."""
    study = hyperparameter_search.open_study(plan)
    for trial in hyperparameter_search.remaining_trials(study, plan):
        value = search_plan.suggest_value(trial, "optimizer.lr", plan.space["optimizer.lr"])
        (folder / f"{trial.number}-{os.getpid()}").touch()
        time.sleep(0.05)
        if trial.number == 3 and len(list(folder.glob("3-*"))) == 1:
            time.sleep(60)
        study.tell(trial, value)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.slow
def test_two_processes_share_a_search_and_one_takes_over_the_trial_of_the_other(tmp_path: Path) -> None:
    settings = ["optimizer.lr=interval(0.0,1.0)", "tune.trials=8", f"paths.output={tmp_path}/outputs"]
    plan = search_plan.make_plan(settings)
    folder = tmp_path / "calls"
    folder.mkdir()
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=search_in_parallel, args=(plan, folder)) for _ in range(2)]
    for worker in workers:
        worker.start()
    wait_for(lambda: len(list(folder.iterdir())) == 8)
    (hanging,) = folder.glob("3-*")
    for worker in workers:
        if str(worker.pid) == hanging.name.partition("-")[2]:
            worker.kill()
    for worker in workers:
        worker.join(240)
    assert sorted(worker.exitcode for worker in workers) == [-signal.SIGKILL, 0]
    trials = hyperparameter_search.open_study(plan).trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 8
    calls = sorted(path.name.partition("-")[0] for path in folder.iterdir())
    assert calls == sorted("01234567" + "3")


@pytest.mark.slow
def test_search_resumes_after_sigkill(tmp_path: Path) -> None:
    overrides = [
        *TINY_REVERSE,
        "logger=none",
        "data.train_size=800",
        "trainer.max_epochs=4",
        "scheduler=constant",
        "optimizer.lr=choice(0.01,1e-6)",
        "tune.trials=4",
        "tune.seed=1",
        "tune.pruner._target_=optuna.pruners.ThresholdPruner",
        "+tune.pruner.upper=2.0",
        "~tune.pruner.n_startup_trials",
        "tune.pruner.n_warmup_steps=1",
    ]
    folder = tmp_path / "outputs" / "reverse-tune"
    search = ForkedProcess(
        [ATTNLAB, "tune", *overrides], cwd=tmp_path, env=clean_environment(), start_new_session=True
    )
    wait_for(lambda: list(folder.glob("*/checkpoints/last.ckpt")))
    os.killpg(search.pid, signal.SIGKILL)
    search.wait()

    completed = attnlab("tune", *overrides, folder=tmp_path)
    (name,) = optuna.get_all_study_names(f"sqlite:///{folder}/tune.db")
    trials = optuna.load_study(study_name=name, storage=f"sqlite:///{folder}/tune.db").trials
    assert len(trials) == 4
    states = {trial.params["optimizer.lr"]: trial.state for trial in trials}
    assert states == {"0.01": TrialState.COMPLETE, "1e-06": TrialState.PRUNED}

    runs = {run.read_config().optimizer.lr: run for run in map(Run, folder.glob("*-seed0-*"))}
    assert set(runs) == {0.01, 1e-6}
    assert runs[0.01].read_result()["status"] == "finished"
    pruned = runs[1e-6].read_result()
    assert pruned["status"] == "interrupted"
    assert pruned["error"].startswith("pruned after 2 validations")
    assert len(read_metrics(runs[1e-6].metrics)["val/loss"]) < 4
    # The interrupted run was resumed, and no run was started twice
    logs = [run.log.read_text() for run in runs.values()]
    resumed = [log.count("resuming from step") for log in logs]
    assert sum(resumed) >= 1
    assert [log.count(" training, ") for log in logs] == [1 + times for times in resumed]
    for run in runs.values():
        assert run.read_result()["command"].startswith("attnlab train data.symbols=5 ")
        steps = [step for step, _ in read_metrics(run.metrics)["train/loss"]]
        assert steps == sorted(set(steps))

    (command,) = [
        line.strip() for line in completed.stdout.splitlines() if line.strip().startswith("attnlab train")
    ]
    again = attnlab(*shlex.split(command)[1:], folder=tmp_path)
    assert "already finished" in again.stdout
    assert str(runs[0.01].directory) in again.stdout
    attnlab("predict", str(runs[0.01].directory), folder=tmp_path, stdin="3 4\n")


@pytest.mark.slow
def test_search_fails_if_all_trials_fail(tmp_path: Path) -> None:
    overrides = [*TINY_REVERSE, "optimizer=sgd", "optimizer.lr=1e38,2e38"]
    completed = attnlab("tune", *overrides, "tune.trials=1", folder=tmp_path, code=1)
    assert "1 trials: 0 finished, 0 pruned, 1 failed" in completed.stderr
    assert re.search(r"The (loss|gradient norm) is", completed.stdout)


def test_best_run_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    study = optuna.create_study()
    trial = study.ask()
    trial.set_user_attr("run", "outputs/[b] :x:/dot-seed0-12345678")
    study.tell(trial, 0.5)
    base = SimpleNamespace(checkpoint=SimpleNamespace(monitor="val/loss"))
    plan: Any = SimpleNamespace(base=base, space={}, trial_overrides=lambda values: ["name=[b] :x:"])
    assert tune._conclude(study, plan) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "best  outputs/[b] :x:/dot-seed0-12345678",
        "      attnlab train 'name=[b] :x:'",
    ]


def test_search_without_a_finished_trial_fails(capsys: pytest.CaptureFixture[str]) -> None:
    study = optuna.create_study()
    study.tell(study.ask(), state=TrialState.FAIL)
    plan: Any = SimpleNamespace(database=Path("outputs/search/trials.db"))
    assert tune._conclude(study, plan) == 1
    assert capsys.readouterr().err == (
        "attnlab: 1 trials: 0 finished, 0 pruned, 1 failed; the reasons are in outputs/search\n"
    )
