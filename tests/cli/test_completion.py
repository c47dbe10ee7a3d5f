"""Tab completion: the words that are offered, and an interactive bash."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import attnlab.cli
from attnlab.cli.completion import complete
from attnlab.cli.main import commands
from commands import ATTNLAB, clean_environment

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("", [f"{command} " for command in commands()]),
        ("attnlab tr", ["train "]),
        ("attnlab  e", ["evaluate ", "export "]),
        ("attnlab dance st", []),
        ("attnlab train attention=ad", ["attention=additive"]),
        ("attnlab train attention_", ["attention_size="]),
        ("attnlab train trainer.max_", [f"trainer.max_{what}=" for what in ("epochs", "steps", "time")]),
        ("attnlab train sched", ["scheduler.", "scheduler="]),
        ("attnlab train hydra/launcher=sl", ["hydra/launcher=slots"]),
        ("attnlab train --prepare force=", ["force=false"]),
        ("attnlab train attention=local_m attention.wi", ["attention.window="]),
        ("attnlab train attention=dot,local_m attention.wi", []),
        ("attnlab train seed=x", []),
        ("attnlab train no=such tok", ["tokenizer="]),
        ("attnlab train seed=[ encoder.si", []),
        ("attnlab train --m", ["--multirun "]),
        ("attnlab train -m hydra/sweeper=op", ["hydra/sweeper=optuna"]),
        ("attnlab bench encoder.si", ["encoder.size="]),
        ("attnlab predict RUN --at", ["--attention "]),
        ("attnlab evaluate out", []),  # bash completes files
    ],
)
def test_completions_of_a_line(line: str, completions: list[str]) -> None:
    assert complete(line) == completions


def test_options_of_another_folder_are_completed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weekdays.yaml").write_text("# @package data\nrepeats: 20\n")
    line = f"attnlab train --config-dir {tmp_path}"
    assert complete(f"{line} data=week") == ["data=weekdays"]
    assert complete(f"{line} data=weekdays data.re") == ["data.repeats="]
    assert complete(f"{line} attention=ad") == ["attention=additive"]


def test_every_module_with_a_main_function_is_a_command() -> None:
    modules = {name for _, name, _ in iter_modules(attnlab.cli.__path__)} - {"main"}
    assert {
        name for name in modules if hasattr(import_module(f"attnlab.cli.{name}"), "main")
    } == commands().keys()


def test_completion_imports_no_torch() -> None:
    code = (
        "import sys; from attnlab.cli.main import run; run(['completion', '--line', 'attnlab train enc']); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "encoder.\nencoder=\n"


@pytest.mark.slow
def test_documented_completion_in_an_interactive_bash(tmp_path: Path) -> None:
    (tmp_path / "outputs" / "reverse" / "dot-seed0-12345678").mkdir(parents=True)
    (install,) = re.findall(r"^\$ (eval .*)$", REFERENCE.read_text(), re.MULTILINE)
    path = f"{Path(ATTNLAB).parent}:{os.environ['PATH']}"
    user, device = pty.openpty()
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        cwd=tmp_path,
        env=clean_environment(PATH=path, PS1="", TERM="dumb", INPUTRC="/dev/null"),
        stdin=device,
        stdout=device,
        stderr=device,
        start_new_session=True,
    ) as bash:
        os.close(device)

        def shown(typed: str, expected: str) -> None:
            os.write(user, typed.encode())
            output, end = "", time.monotonic() + 30
            while expected not in output:
                if not select.select([user], [], [], max(0, end - time.monotonic()))[0]:
                    bash.kill()
                    pytest.fail(output)
                output += os.read(user, 4096).decode()
            os.write(user, b"\x15")  # empties the line

        shown(f"{install}; echo in''stalled\n", "installed\r\n")
        shown("attnlab tr\t", "attnlab train ")
        shown("attnlab train attention=ad\t", "train attention=additive")
        shown("attnlab train attention=dot attention_s\t", "attention=dot attention_size=")
        shown("attnlab predict out\t", "predict outputs/")
        shown("attnlab predict outputs/reverse/d\t", "reverse/dot-seed0-12345678/")
        shown("attnlab report --all\t", "--all-pairs ")
        os.write(user, b"exit\n")
        assert bash.wait(timeout=30) == 0
    os.close(user)
