"""Parts of Hydra 1.3 and 1.4 that attnlab uses and that are private or differ."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import InstantiationException
from omegaconf import OmegaConf

import attnlab
import hydra_plugins.attnlab_launchers
from attnlab.config.hydra_versions import IS_1_4, get_args_parser, instantiate
from attnlab.config.trust import targets
from commands import clean_environment
from forked import ATTNLAB

ROOT = Path(__file__).parents[2]


def test_private_names_are_imported_in_one_module() -> None:
    folders = [
        Path(attnlab.__file__).parent,
        Path(hydra_plugins.attnlab_launchers.__file__).parents[1],
        *(ROOT / name for name in ("tests", "experiments", "docs")),
    ]
    private = re.compile(r"^ *(?:from|import) (?:hydra|omegaconf)[\w.]*(?:\.| import )_", re.MULTILINE)
    names = {
        path.name for folder in folders for path in folder.rglob("*.py") if private.search(path.read_text())
    }
    assert names == {"hydra_versions.py"}


def test_parser_of_the_command_line_has_the_options_that_train_reads() -> None:
    parsed = get_args_parser().parse_intermixed_args(["seed=1", "-m", "--cfg", "job", "a=1"])
    assert (parsed.overrides, parsed.multirun, parsed.cfg) == (["seed=1", "a=1"], True, "job")
    assert not parsed.resolve
    assert not parsed.help


def test_composing_gives_no_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", ATTNLAB, "train", "--cfg", "job"]
    done = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_hydra_1_4_refuses_functions_of_packages_that_a_section_does_not_name() -> None:
    assert instantiate({"_target_": "builtins.dict", "a": {"_target_": "builtins.int"}}) == {"a": 0}
    inner = OmegaConf.create({"_target_": "builtins.int"})
    assert instantiate({"_target_": "builtins.dict", "a": inner}) == {"a": 0}
    assert targets({"_target_": "builtins.dict", "a": inner}) == ["builtins.dict", "builtins.int"]
    getter = {"_target_": "attnlab.training.build.get_object", "path": "os.getpid"}
    if not IS_1_4:
        assert instantiate(getter) is os.getpid
        return
    with pytest.raises(InstantiationException, match="whitelist"):
        instantiate(getter)
