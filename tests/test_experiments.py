"""The commands of experiments, studies and reports compose, and make generates the reports."""

import ast
import csv
import re
import runpy
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import attnlab
from attnlab.config.checks import check_settings
from attnlab.config.compose import compose_run
from attnlab.config.options import CONF, config_dirs
from attnlab.data.datasets import scan
from attnlab.metrics import registry
from attnlab.report.benchmark import scores
from commands import clean_environment
from compositions import first_job
from forked import serve_program

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
SOURCE = Path(attnlab.__file__).parent
REPORTS = sorted(path for path in EXPERIMENTS.glob("*/README.md") if path.parent.name != "parts")
OWN_CONF = sorted(EXPERIMENTS.glob("*/conf"))
"""Folders of the options that only experiments have."""
RECORDER = '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done >> {log}\necho >> {log}\n'
"""A stand-in for `attnlab` that writes its arguments to a file, one per line."""


def training_commands(text: str) -> list[list[str]]:
    """Return the overrides of every `attnlab train` or `bench` command in a text.

    A command is a whole line, the end of a comment in conf/, or quoted by backticks.
    """
    joined = re.sub(r"\\\n#?\s*", " ", text)
    commands = re.findall(r"attnlab (?:train|bench) ([^`\n]*)", joined)
    parsed = [shlex.split(command.replace("…", ""), comments=True) for command in commands]
    return [[argument for argument in command if re.match(r"~|[\w@/.+-]+=", argument)] for command in parsed]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        file
        for conf in (CONF, *OWN_CONF)
        for group in ("experiment", "study")
        for file in conf.glob(f"{group}/*")
    ],
    ids=lambda path: f"{path.parent.name}={path.stem}",
)
def test_file_of_an_experiment_or_study_starts_with_its_command(path: Path) -> None:
    header = "".join(line for line in path.read_text().splitlines(True) if line.startswith("#"))
    commands = training_commands(header)
    assert any(f"{path.parent.name}={path.stem}" in command for command in commands)
    with config_dirs([*map(str, OWN_CONF)]):
        for command in commands:
            check_settings(compose_run(first_job(command)))


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXPERIMENTS.rglob("*.md")), ids=lambda path: path.parent.name)
def test_commands_of_an_experiment_report_compose(path: Path) -> None:
    with config_dirs([*map(str, OWN_CONF)]):
        for command in training_commands(path.read_text()):
            check_settings(compose_run(first_job(command)))


@pytest.mark.slow
@pytest.mark.experiments
def test_every_question_can_be_answered_in_short_form(tmp_path: Path) -> None:
    program = tmp_path / "attnlab"
    environment = clean_environment(WANDB_MODE="offline")
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with serve_program(program):
        settings = ("QUICK=1", f"ATTNLAB={program}", f"OUTPUTS={tmp_path}")
        subprocess.run(["make", "-C", str(EXPERIMENTS), "all", *settings], env=environment, check=True)


@pytest.mark.slow
def test_training_commands_of_the_makefile_compose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make experiments` runs the commands of their short form."""
    monkeypatch.syspath_prepend(EXPERIMENTS / "scan")  # the Makefile sets PYTHONPATH
    log, recorder = tmp_path / "commands", tmp_path / "attnlab"
    recorder.write_text(RECORDER.format(log=log))
    recorder.chmod(0o755)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ncat > /dev/null\nprintf 1\n")  # reads its input: pipes break otherwise
    python.chmod(0o755)
    makefile = (EXPERIMENTS / "Makefile").read_text()
    questions = re.search(r"^QUESTIONS = ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    targets = questions[1].replace("\\\n", " ").split()
    subprocess.run(
        [
            *("make", "-C", str(EXPERIMENTS), *targets),
            *(f"ATTNLAB={recorder}", f"PYTHON={python}", f"OUTPUTS={tmp_path}"),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    commands = [lines.splitlines() for lines in log.read_text().split("\n\n") if lines]
    training = [command[1:] for command in commands if command[0] == "train"]
    assert len(training) >= 10
    with config_dirs([*map(str, OWN_CONF)]):
        for command in training:
            check_settings(compose_run(first_job([word for word in command if not word.startswith("-")])))


@pytest.mark.slow
def test_compressed_answers_of_scan_expand_to_the_answers() -> None:
    names = runpy.run_path(str(EXPERIMENTS / "scan" / "repeated_units.py"))
    answers = {pair.source: pair.target for pair in scan.commands()}
    units = names["frequent_units"](list(answers.values()), 16)
    compressed = {source: names["compress"](answer, units) for source, answer in answers.items()}
    assert {source: names["expand"](answer) for source, answer in compressed.items()} == answers
    assert compressed["jump around left thrice"] == "I_TURN_LEFT+I_JUMP *12"
    assert compressed["walk opposite right after turn left"] == "I_TURN_LEFT I_TURN_RIGHT+I_TURN_RIGHT+I_WALK"
    assert names["expand"]("*3 I_RUN *2") == "I_RUN I_RUN"


@pytest.mark.parametrize(
    "path",
    [
        *sorted(EXPERIMENTS.glob("*/results.csv")),
        EXPERIMENTS / "speed" / "startup.csv",
        EXPERIMENTS / "benchmark" / "summary.py",  # its results are part of the package
    ],
    ids=lambda path: path.parent.name,
)
def test_table_of_a_readme_is_that_of_its_results(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["summary.py"])
    monkeypatch.setattr(registry, "METRICS", {**registry.METRICS})  # which it may add to
    monkeypatch.syspath_prepend(str(path.parent))  # as `python summary.py` does
    runpy.run_path(str(path.with_name("summary.py")), run_name="__main__")
    assert generated_part(path.with_name("README.md")) == capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.parent.name)
def test_table_without_results_file_is_marked(path: Path) -> None:
    part = generated_part(path)
    reads_other_results = path.parent.name in ("robustness", "speed", "benchmark")
    if part is not None and not reads_other_results:
        assert part.startswith("**No results file.**") != path.with_name("results.csv").is_file()


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*/figure.svg")), ids=lambda path: path.parent.name)
def test_figure_has_the_numbers_of_the_results(path: Path) -> None:
    names = runpy.run_path(str(EXPERIMENTS / "figures.py"))
    described = ElementTree.parse(path).findtext(".//{http://purl.org/dc/elements/1.1/}description")
    assert described == names["description"](names[path.parent.name]())
    assert 'src="figure.svg"' in path.with_name("README.md").read_text(encoding="utf-8")


def test_package_names_no_part_of_an_experiment() -> None:
    """Experiments depend on attnlab and not the other way round: they can be deleted without touching it."""
    options = {f"{path.parent.name}={path.stem}" for conf in OWN_CONF for path in conf.glob("*/*.yaml")}
    modules = {path.parent.name for path in EXPERIMENTS.glob("*/*/__init__.py")}
    assert {"encoder=nested", "decoder=finite_state"} <= options
    assert "attnlab_parts" in modules
    names = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in sorted(options | modules)))
    package = CONF.parent / "src"
    for path in (*package.rglob("*.py"), *CONF.rglob("*.yaml")):
        found = names.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path}: {found}"


def test_scripts_import_names_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXPERIMENTS / "parts"))
    for path in EXPERIMENTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("attnlab"):
                names = [name.name for name in node.names]
                module = __import__(str(node.module), fromlist=names)  # imports names that are modules
                assert all(hasattr(module, name) for name in names), path


def test_experiments_use_public_names_only() -> None:
    """An extension imports neither the tests nor private names, as that of any user."""
    private, helpers = [], {path.stem for path in Path(__file__).parent.glob("*.py")} | {"tests"}
    for path in EXPERIMENTS.rglob("*.py"):
        tree = ast.parse(path.read_text())
        imported, bound = [], set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported += [name.name for name in node.names]
                bound |= {name.asname or name.name for name in node.names if name.name.startswith("attnlab")}
            elif isinstance(node, ast.ImportFrom):
                imported += [f"{node.module}.{name.name}" for name in node.names]
                if str(node.module).startswith("attnlab"):
                    bound |= {name.asname or name.name for name in node.names}
        imported += [
            f"attnlab.{ast.unparse(node)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in bound
        ]
        private += [
            (path.relative_to(EXPERIMENTS), name)
            for name in imported
            if name.partition(".")[0] in helpers or re.match(r"attnlab\..*\b_(?!_|fields\b)", name)
        ]
    assert not private


def test_no_module_of_attnlab_knows_an_experiment() -> None:
    """An experiment can be deleted without a change of the core."""
    names = "|".join(path.name for path in EXPERIMENTS.iterdir() if path.is_dir())
    for path in SOURCE.rglob("*.py"):
        assert not re.search(rf"experiments[/.]({names})\b", path.read_text()), path


def test_recorded_commits_are_in_the_history() -> None:
    shallow = git("rev-parse", "--is-shallow-repository")
    if shallow != "false":
        pytest.skip("not a checkout with the whole history")
    history = {commit[:12] for commit in git("rev-list", "HEAD").split()}
    for path in (*EXPERIMENTS.glob("*/*.csv"), scores.STORED):
        with path.open(newline="") as file:
            for commit in {row.get("commit") for row in csv.DictReader(file)} - {None, ""}:
                assert str(commit)[:12] in history, f"{path}: {commit}"


DECLARED = "experiments/declared.md"
FROZEN_SINCE = "cfe21f0ce5a0"
"""Before this commit, declared comparisons were changed, as their page says."""


def test_declared_comparisons_never_change() -> None:
    commits = git("rev-list", "--reverse", f"{FROZEN_SINCE}..HEAD", "--", DECLARED).split()
    if not git("rev-parse", "--verify", "--quiet", FROZEN_SINCE):
        pytest.skip("not a checkout with the whole history")
    texts = [git("show", f"{commit}:{DECLARED}") for commit in [FROZEN_SINCE, *commits]]
    texts.append((EXPERIMENTS / "declared.md").read_text())
    for before, after in pairwise(map(declared_entries, texts)):
        for number, entry in before.items():
            statements = after[number]
            assert statements[: len(entry)] == entry, f"number {number} was changed"
            assert all(
                re.match(r"- (\*\*)?(Result|Correction)", added) for added in statements[len(entry) :]
            ), f"number {number}: only results and corrections may be added"


def declared_entries(text: str) -> dict[str, list[str]]:
    """Return the title and the list items of each declared comparison by its number."""
    entries = {}
    for entry in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, *items = re.split(r"\n(?=- )", entry.strip())
        entries[title.partition(".")[0]] = [title, *items]
    return entries


def git(*arguments: str) -> str:
    """Return the output of a git command in the checkout; empty if it fails."""
    done = subprocess.run(
        ["git", *arguments], cwd=EXPERIMENTS.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def generated_part(readme: Path) -> str | None:
    """Return the generated part of a README; None if it has none."""
    match = re.search(
        r"<!-- generated by make -->\n(.*)<!-- end of the generated part -->", readme.read_text(), re.DOTALL
    )
    return match and match[1].strip()


@pytest.mark.parametrize(
    ("text", "printed", "message"),
    [
        ("# No markers\n", "new", "has no generated part"),
        (
            "<!-- generated by make -->\nold\n<!-- end of the generated part -->\n",
            "",
            "standard input is empty",
        ),
    ],
)
def test_update_readme_fails_without_markers_or_input(
    tmp_path: Path, text: str, printed: str, message: str
) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    command = [sys.executable, str(EXPERIMENTS / "update_readme.py"), str(path)]
    done = subprocess.run(command, input=printed, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert path.read_text() == text


def test_update_readme_replaces_the_generated_part(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- generated by make -->\nold\n<!-- end of the generated part -->\nafter\n")
    for _ in range(2):
        command = [sys.executable, str(EXPERIMENTS / "update_readme.py"), str(path)]
        subprocess.run(command, input="new\n", text=True, check=True)
        expected = "before\n<!-- generated by make -->\n\nnew\n\n<!-- end of the generated part -->\nafter\n"
        assert path.read_text() == expected


def test_no_folder_has_the_name_of_a_package() -> None:
    """The folder of `make` is on the path of trainings, and pandas imports "bottleneck" if it can."""
    optional = {"bottleneck", "numexpr", "numba", "xarray", "tables", "fastparquet"}
    folders = {path.name for path in EXPERIMENTS.iterdir()}
    assert not folders & (optional | set(sys.stdlib_module_names))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.parent.name)
def test_report_ends_with_what_limits_it(path: Path) -> None:
    ending = path.read_text().rsplit("\n\n", 1)[-1]
    assert re.findall(r"^- \*\*(.+?):\*\*", ending, re.MULTILINE) == [
        "What would change this conclusion",
        "Decided before the runs",
        "Cost of a single seed",
    ]
