"""The parts of CONTRIBUTING.md are added to a copy of attnlab, which then finds and uses them."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import clean_environment

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"```\w+\n# ((?:src|conf|tests)/\S+)\n(.*?)```\n", re.DOTALL)
TINY = (
    *("embedding.size=8", "encoder.size=8", "decoder.size=8", "trainer.max_epochs=1", "logger=none"),
    *("data.train_size=64", "data.test_size=8", "trainer.accelerator=cpu", "search.max_length=8"),
    "callbacks.attention_figures.count=0",
)

Run = Callable[..., subprocess.CompletedProcess[str]]


def added_files() -> dict[str, str]:
    """Return the files of CONTRIBUTING.md by their paths."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return dict(FILE.findall(text))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python in a copy of attnlab with the added files."""
    copy = tmp_path_factory.mktemp("attnlab")
    for folder in ("src", "conf", "tests"):
        shutil.copytree(
            ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", copy)
    for path, content in added_files().items():
        assert not (copy / path).exists(), path
        (copy / path).write_text(content, encoding="utf-8")

    def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
        expanded = (sorted(copy.glob(part)) if "*" in part else [part] for part in arguments)
        command = [sys.executable, *(str(part) for parts in expanded for part in parts)]
        environment = clean_environment(PYTHONPATH=str(copy / "src"), OMP_NUM_THREADS="1")
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    return run_python


OPTIONS = ("low_rank", "digit", "cumulative", "feed_forward", "rotation", "confidence", "weight_norm")
READ_METRICS = "from pathlib import Path; print(next(Path('outputs').rglob('metrics.csv')).read_text())"
OTHERS = ("length_ratio", "parameters")


def test_a_part_is_a_module_a_test_and_perhaps_an_option() -> None:
    for name in (*OPTIONS, *OTHERS):
        folders = sorted(path.partition("/")[0] for path in added_files() if name in path)
        assert folders == (["conf", "src", "tests"] if name in OPTIONS else ["src", "tests"])
    assert len(added_files()) == 3 * len(OPTIONS) + 2 * len(OTHERS)


@pytest.mark.slow
def test_added_parts_work_together(run: Run) -> None:
    program = "from attnlab.cli.main import main; main()"
    shown = run("-c", program, "train", "--help").stdout
    assert all(option in shown for option in OPTIONS)
    assert "print the number of parameters" in run("-c", program, "--help").stdout
    chosen = ("attention=low_rank", "embedding=digits", "encoder=cumulative", "decoder=feed_forward")
    added = ("data=rotation", "loss.terms.confidence.weight=0.2", "callbacks.weight_norm.every_n_epochs=1")
    settings = (*chosen, *added, *TINY, "trainer.log_every_n_steps=1")
    assert "length ratio" in run("-c", program, "train", *settings).stdout
    metrics = run("-c", READ_METRICS).stdout
    assert "train/confidence_loss" in metrics
    assert "train/weight_norm" in metrics
    assert re.search(r"\t\d+$", run("-c", program, "parameters", "outputs/rotation/low_rank-seed0-*").stdout)


@pytest.mark.slow
def test_tests_of_all_parts_include_the_added_ones(run: Run) -> None:
    own = [path for path in added_files() if path.startswith("tests/")]
    every = ("tests/nn/attention/test_attention.py", "tests/nn/encoders/test_every_encoder.py")
    names = "LowRank or digit or Cumulative or sums or moves or depends or projections or ratio or missing"
    names += " or penalty or norm"
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", *own, *every, "-k", names)
    assert re.search(r"\b[1-9]\d passed", done.stdout), done.stdout[-500:]
