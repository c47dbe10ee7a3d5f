"""Tasks, mechanisms and runs of `study=benchmark_v1`, for the benchmark and the check of its files."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from attnlab.files.terminal import print_line

FREE = re.compile(r"attention\b|paths\.output$|logger\b|hydra\b")
"""Settings that the command of a mechanism may change, by their names in the composed configuration."""


def models() -> dict[str, list[str]]:
    """Return the settings of the stored mechanisms."""
    from attnlab.config.options import read_option
    from attnlab.report.benchmark.scores import SUITE

    settings: dict[str, list[str]] = read_option("study", SUITE)["hydra"]["sweeper"]["overrides"]["model"]
    return settings


def available(corpora: Path, *, download: bool) -> list[str]:
    """Return the tasks whose files exist, or can be downloaded; print those that are left out."""
    from attnlab.config.options import read_option
    from attnlab.report.benchmark import scores
    from attnlab.report.benchmark.scores import SUITE

    for line in scores.download(corpora) if download else ():
        print_line(line)
    tasks = []
    for task, words in read_option("study", SUITE)["hydra"]["sweeper"]["overrides"]["task"].items():
        files = [corpora / name for name in re.findall(r"\$\{corpora\}/(\S+)", "\n".join(words))]
        missing = [file for file in files if not file.is_file()]
        if missing:
            print_line(f"left out: {task}, {missing[0]} does not exist (--corpora FOLDER)", style="yellow")
        else:
            tasks.append(task)
    return tasks


def train_runs(overrides: Sequence[str], corpora: Path) -> int:
    """Train the runs of the suite that are missing; returns the exit code."""
    from attnlab.cli import train
    from attnlab.report.benchmark.scores import SUITE

    words = ["-m", f"study={SUITE}", f"corpora={corpora.absolute()}", *overrides]
    return train.main(argparse.Namespace(arguments=words))


def other_settings(overrides: Sequence[str]) -> list[str]:
    """Return the rule that is broken if an option file changes more than the attention; else nothing."""
    from omegaconf import OmegaConf

    from attnlab.config.compose import compose_run
    from attnlab.files.run_identity import flatten
    from attnlab.report.benchmark.scores import SUITE

    own, suite = (
        flatten(cast("dict[str, Any]", OmegaConf.to_container(compose_run([f"study={SUITE}", *words]))))
        for words in (overrides, ())
    )
    names = {
        name
        for name in own.keys() | suite.keys()
        if own.get(name) != suite.get(name) and not FREE.match(name)
    }
    return [f"settings that are not those of the suite: {', '.join(sorted(names))}"] if names else []
