"""The README's examples, executed as they stand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from commands import TINY_REVERSE, attnlab

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
OWN, ALONE = EXAMPLES


@pytest.mark.slow
def test_a_mechanism_of_ones_own_trains_and_predicts(tmp_path: Path) -> None:
    (tmp_path / "cosine.py").write_text(OWN)
    (command,) = re.findall(r"^attnlab (train .*cosine.Cosine.*)$", README, re.MULTILINE)
    words = [*shlex.split(command), *TINY_REVERSE, "trainer.max_epochs=1", "logger=none"]
    done = attnlab(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "outputs" / "reverse").iterdir()
    assert directory.name.startswith("cosine-seed0-")
    assert json.loads((directory / "result.json").read_text())["status"] == "finished"
    assert attnlab("predict", str(directory), folder=tmp_path, stdin="3 4\n").returncode == 0


def test_attention_over_a_grid_of_image_features() -> None:
    names: dict[str, object] = {}
    exec(ALONE, names)
    assert names["context"].shape == (2, 512)  # type: ignore[attr-defined]
    assert names["picture"].shape == (2, 7, 7)  # type: ignore[attr-defined]


def test_every_path_it_names_exists() -> None:
    root = Path(__file__).parents[1]
    for name in re.findall(r"`((?:tests|experiments|conf|src)/[\w/.]+)`", README):
        if "cosine" not in name:
            assert (root / name).exists(), name


def test_every_option_it_names_exists() -> None:
    conf = Path(__file__).parents[1] / "conf"
    groups = "|".join(path.name for path in conf.iterdir() if path.is_dir())
    for group, option in re.findall(rf"\b({groups})=(\w+)", README):
        assert (conf / group / f"{option}.yaml").exists(), f"{group}={option}"
