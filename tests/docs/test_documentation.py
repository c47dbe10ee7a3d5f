"""The commands and Python examples of the documentation, executed page by page.

A page is followed as `docs/extension/examples.py` describes. Sphinx executes the tutorials in full, for their
outputs (`docs/extension/tutorial_outputs.py`); the other pages are followed here, with trainings that are
shortened by `SHORT`, appended to every `attnlab train`. The configurations of commands
that are not run are composed.
"""

import ast
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path
from shutil import copyfile

import pytest
import yaml

from attnlab.config.checks import check_settings
from attnlab.config.compose import compose_run
from attnlab.jobs.grid import split_zip
from attnlab.metrics.registry import METRICS
from commands import clean_environment
from compositions import first_job
from examples import blocks, executed, follow
from forked import serve_program

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "docs" / "extension"
OVERVIEW = ROOT / "experiments" / "README.md"
GENERATED = {ROOT / "docs" / "results", ROOT / "docs" / "build"}
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if not GENERATED & {*path.parents}),
]

SHORT = {
    "trainer.max_epochs": "1",
    "trainer.limit_train_batches": "4",
    "trainer.limit_val_batches": "1",
    "trainer.limit_test_batches": "1",
    "batching.batch_size": "8",
    "embedding.size": "8",
    "encoder.size": "8",
    "decoder.size": "16",
    "attention_size": "8",
    "search.max_length": "10",
    "logger": "none",
}
"""Settings of short training runs. A command's own settings take precedence."""


def shortened(arguments: list[str]) -> list[str]:
    """Return the arguments of a command with those of `SHORT` that it does not give itself."""
    if arguments[0] != "train" or {"--help", "--cfg"} & {*arguments}:
        return arguments
    given = {key for argument in arguments for key in re.findall(r"(?:^|[\s(+-])([\w./@]+)=", argument)}
    return arguments + [f"{key}={value}" for key, value in SHORT.items() if key not in given]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.examples
@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if page.parent.name != "tutorials" and executed(page.read_text(encoding="utf-8"))
    ],
    ids=name,
)
def test_examples_of_the_page_run(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "attnlab"
    program.parent.mkdir()
    environment = clean_environment(WANDB_MODE="offline")
    environment["PATH"] = f"{program.parent}:{Path(sys.executable).parent}:{environment['PATH']}"
    folder = tmp_path / "work"
    folder.mkdir()
    for module in page.parent.glob("lesson.py"):
        copyfile(module, folder / module.name)
    with serve_program(program, shortened):
        for done in follow(page.read_text(encoding="utf-8"), folder, environment):
            assert done.expected, f"{name(page)}:{done.block.line}\n{done.command}\n{done.output}"


def composed() -> list[tuple[str, str]]:
    """Return every `attnlab train` of a console block that is not run, with its place."""
    return [
        (f"{name(page)}:{block.line}", command)
        for page in PAGES
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language == "console" and block.marker == "not run"
        for command in block.commands
        if re.match(r"attnlab train ", command)
        and "--help" not in command
        and "--config-dir" not in command  # such options exist only in the folder of the page
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "command"), composed())
def test_configuration_of_the_command_composes(
    place: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in blocks(PAGES[0].read_text(encoding="utf-8")):
        if block.file:  # the mechanism of the README, which commands name
            (tmp_path / block.file).write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    words = [word.removeprefix("--") for word in shlex.split(command, comments=True)[2:] if "=" in word]
    arguments = [override for word in words for override in split_zip(word) or [word]]
    with warnings.catch_warnings():  # conf/hydra/launcher files have the names of their plugins' schemas
        warnings.filterwarnings("ignore", r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema")
        check_settings(compose_run(first_job(arguments)))


def test_every_path_in_the_readme_exists() -> None:
    for link in re.findall(
        r"[\"(]((?:tests|experiments|conf|src|docs)/[\w/.-]+)[\")#]", PAGES[0].read_text()
    ):
        assert (ROOT / link).exists(), link


def test_folder_of_the_runs_belongs_to_the_repository() -> None:
    assert (ROOT / "outputs" / ".gitignore").read_text() == "*\n!.gitignore\n"


def test_every_group_has_a_page() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference" / "groups").glob("*.md"))
    for group in (*(path.name for path in (ROOT / "conf").iterdir() if path.is_dir()), "hydra/launcher"):
        assert group in ("hydra", "__pycache__") or f"```{{options}} {group}\n" in pages, group


def test_every_metric_has_a_definition() -> None:
    """The docstring of a text metric also counts as its definition."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    missing = [metric for metric in METRICS if f"\n`{metric}`\n: " not in page]
    assert [metric for metric in missing if not METRICS[metric].function] == []


def test_gallery_shows_every_mechanism() -> None:
    options = {path.stem for path in (ROOT / "conf" / "attention").glob("*.yaml")}
    texts = yaml.safe_load((ROOT / "docs" / "gallery" / "mechanisms.yaml").read_text(encoding="utf-8"))
    assert {*texts} == options
    directive = (EXTENSION / "mechanism_reference.py").read_text(encoding="utf-8")
    assert [name for name in sorted(options) if f'"{name}"' not in directive] == []


def test_links_of_experiments_lead_to_pages_and_files() -> None:
    experiment_pages = runpy.run_path(str(EXTENSION / "experiment_pages.py"))
    names = {path.parent.name for path in (ROOT / "experiments").glob("*/README.md")} - {"parts"}
    assert names == {name for _, name in experiment_pages["ROW"].findall(OVERVIEW.read_text())}
    for name in names:
        for link in re.findall(
            r"\]\((?!https?:|#)([^)#\s]+)|\{image\} (\S+)", experiment_pages["page"](name)
        ):
            target = (ROOT / "docs" / "results" / "".join(link)).resolve()
            is_page = target.parent.name == "results" and target.stem in names | {"conditions", "declared"}
            assert is_page or target.is_file(), f"{name}: {link}"


def test_every_option_in_the_documentation_exists() -> None:
    conf = ROOT / "conf"
    groups = "|".join(path.name for path in conf.iterdir() if path.is_dir() and path.name != "hydra")
    for page in [*PAGES, *sorted((ROOT / "experiments").rglob("README.md"))]:
        for group, option in re.findall(rf"(?<![\w.@])({groups})=(?!glob)([a-z]\w*)", page.read_text()):
            file = f"{group}/{option}.yaml"
            shipped = (conf / file).exists() or [*ROOT.glob(f"experiments/*/conf/{file}")]
            created_on_the_page = f"{group}/{option}.yaml" in page.read_text()
            assert shipped or created_on_the_page, f"{name(page)}: {group}={option}"


def test_reading_order_is_short_and_its_definitions_exist() -> None:
    page = (ROOT / "docs" / "explanation" / "read-the-code.md").read_text()
    rows = re.findall(r"^\| \d+ \| `(src/[\w/.]+)` \| ([^|]+) \|", page, re.MULTILINE)
    assert len(rows) == page.count("| `src/") == 12
    lines = 0
    for file, read in rows:
        text = (ROOT / file).read_text()
        sizes = {
            node.name: node.end_lineno - node.lineno + 1
            for node in ast.parse(text).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        names = re.findall(r"`(\w+)`", read)
        lines += sum(sizes[name] for name in names) if names else len(text.splitlines())
    assert lines <= 1600
