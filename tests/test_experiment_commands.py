"""The commands in conf/, experiments/Makefile and the experiment reports compose with today's settings."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob

from attnlab.config.compose import CONF, compose_run

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
RECORDER = '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done >> {log}\necho >> {log}\n'
"""A stand-in for `attnlab` that writes its arguments to a file, one per line."""


def first_job(overrides: list[str]) -> list[str]:
    """Return the overrides of the first job of a sweep over these overrides."""
    job = []
    for override in OverridesParser.create().parse_overrides(overrides):
        if not override.is_sweep_override():
            job.append(str(override.input_line))
            continue
        key = override.get_key_element()
        if isinstance(override.value(), Glob):
            value = min(path.stem for path in (CONF / key).glob("*.yaml"))
        else:
            value = str(next(iter(override.sweep_string_iterator())))
        job.append(f"{key}={value}")
    return job


def training_commands(text: str) -> list[list[str]]:
    """Return the overrides of every `attnlab train`, `tune` or `bench` command in a text.

    A command is a whole line, the end of a comment in conf/, or quoted by backticks.
    """
    joined = re.sub(r"\\\n\s*", " ", text)
    commands = re.findall(r"attnlab (?:train|tune|bench) ([^`\n]*)", joined)
    words = [shlex.split(command.replace("…", ""), comments=True) for command in commands]
    return [[word for word in command if re.match(r"[\w@/.+~-]+=", word)] for command in words]


@pytest.mark.parametrize(
    "path",
    [*(CONF / "experiment").glob("*.yaml"), *(CONF / "study").glob("*.yaml")],
    ids=lambda path: f"{path.parent.name}={path.stem}",
)
def test_file_of_an_experiment_or_study_starts_with_its_command(path: Path) -> None:
    header = "".join(line for line in path.read_text().splitlines(True) if line.startswith("#"))
    commands = training_commands(header)
    assert any(f"{path.parent.name}={path.stem}" in command for command in commands)
    for command in commands:
        compose_run(first_job(command))


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.rglob("*.md")), ids=lambda path: path.parent.name)
def test_commands_of_an_experiment_report_compose(path: Path) -> None:
    for command in training_commands(path.read_text()):
        compose_run(first_job(command))


def test_training_commands_of_the_makefile_compose(tmp_path: Path) -> None:
    log, recorder = tmp_path / "commands", tmp_path / "attnlab"
    recorder.write_text(RECORDER.format(log=log))
    recorder.chmod(0o755)
    makefile = (EXPERIMENTS / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None
    subprocess.run(
        [
            *("make", "-C", str(EXPERIMENTS), *targets[1].split()),
            *(f"ATTNLAB={recorder}", "PYTHON=true", f"OUTPUTS={tmp_path}"),
        ],
        check=True,
        capture_output=True,
    )
    commands = [lines.splitlines() for lines in log.read_text().split("\n\n") if lines]
    training = [command[1:] for command in commands if command[0] == "train"]
    assert len(training) >= 10
    for command in training:
        compose_run(first_job([word for word in command if "=" in word]))
