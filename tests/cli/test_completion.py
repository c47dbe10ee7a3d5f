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


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("", [f"{command} " for command in commands()]),
        ("attnlab tr", ["train "]),
        ("attnlab  e", ["evaluate ", "export "]),
        ("attnlab dance st", []),
        ("attnlab train attention=ad", ["attention=additive"]),
        ("attnlab train -m attention=dot,ad", ["attention=dot,additive"]),
        ("attnlab train attention_", ["attention_bias=", "attention_override=", "attention_size="]),
        ("attnlab train trainer.max_", [f"trainer.max_{what}=" for what in ("epochs", "steps", "time")]),
        ("attnlab train sched", ["scheduler.", "scheduler="]),
        ("attnlab train hydra/launcher=sl", ["hydra/launcher=slots"]),
        ("attnlab train ++force=", ["++force=false", "++force=true"]),
        ("attnlab train attention=local_m attention.wi", ["attention.window="]),
        ("attnlab train attention=dot,local_m attention.wi", []),
        ("attnlab train seed=x", []),
        ("attnlab train no=such tok", ["tokenizer.", "tokenizer=", "tokenizer@target_tokenizer="]),
        ("attnlab train --m", ["--multirun "]),
        ("attnlab train hydra", ["hydra/launcher=", "hydra/sweeper="]),
        ("attnlab train -m hydra/sweeper=op", ["hydra/sweeper=optuna"]),
        ("attnlab bench encoder.si", ["encoder.size="]),
        ("attnlab predict RUN --at", ["--attention "]),
        ("attnlab evaluate out", []),  # bash completes files
    ],
)
def test_completions_of_a_line(line: str, completions: list[str]) -> None:
    assert complete(line) == completions


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--config-dir ", "--config-dir=", "-cd ", "-cd="])
def test_options_of_another_folder_are_completed(option: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weekdays.yaml").write_text("# @package data\nrepeats: 20\n")
    line = f"attnlab train {option}{tmp_path}"
    assert complete(f"{line} data=week") == ["data=weekdays"]
    assert complete(f"{line} data=weekdays data.re") == ["data.repeats="]
    assert complete(f"{line} attention=ad") == ["attention=additive"]
    option = tmp_path / "data" / "weekdays.yaml"
    option.write_text("# @package data\nreversed: true\n")
    os.utime(option, ns=(0, 0))
    assert complete(f"{line} data=weekdays data.re") == ["data.reversed="]
    assert complete("attnlab train --config-dir ") == []


LINE = "attnlab train attention=local_m seed=3 attention.wi"


@pytest.mark.parametrize("broken", ["no cache", "no folder", "damaged"])
def test_a_broken_cache_does_not_break_completion(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    folder = {"no folder": tmp_path / "file"}.get(broken, tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    if broken == "damaged":
        complete(LINE)
        (cached,) = folder.glob("attnlab/completion-*.json")
        cached.write_text('{"attention.wi')
    assert complete(LINE) == ["attention.window="]


def test_known_settings_are_completed_without_hydra() -> None:
    code = (
        "import sys; from attnlab.cli.completion import complete; complete(sys.argv[1]); "
        "print('hydra' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    for line, composed in ((LINE, None), (LINE, "False"), (LINE.replace("seed=3 ", ""), "False")):
        done = subprocess.run([*command, line], capture_output=True, text=True, check=True)
        assert composed is None or done.stdout.split() == [composed]


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
                assert select.select([user], [], [], max(0, end - time.monotonic()))[0], output
                output += os.read(user, 4096).decode()
            os.write(user, b"\x15")  # empties the line

        shown(f"{install}; echo in''stalled\n", "installed\r\n")
        shown("attnlab tr\t", "attnlab train ")
        shown("attnlab train attention=ad\t", "train attention=additive")
        shown("attnlab train attention=dot attention_s\t", "attention=dot attention_size=")
        shown("attnlab train attention=\t\t", "scaled_dot")
        shown("attnlab train -m hydra/sweeper=op\t", "hydra/sweeper=optuna")
        shown("attnlab predict out\t", "predict outputs/")
        shown("attnlab predict outputs/reverse/d\t", "reverse/dot-seed0-12345678/")
        shown("attnlab report --all\t", "--all-pairs ")
        os.write(user, b"exit\n")
        assert bash.wait(timeout=30) == 0
    os.close(user)
