"""`attnlab benchmark`: compare an attention mechanism with all others on a suite of tasks.

`attnlab benchmark attention=dot attention._target_=cosine.Cosine +attention.temperature=0.1` checks the
mechanism, trains the runs of `study=benchmark_v1` that are missing, and compares them with the stored results
of the other mechanisms.
`attnlab benchmark check FILE.csv` checks the results that it wrote, and trains a run of each task again.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from attnlab.cli import arguments
from attnlab.cli.benchmark_suite import available, models, other_settings, train_runs
from attnlab.errors import INTERRUPTED, UsageError, UserError
from attnlab.files.terminal import print_line, print_table

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from attnlab.report.benchmark.scores import Results
    from attnlab.report.explorer import Sentence

PARTS = ("attention", "encoder", "decoder")  # Groups of options that say what is built in

NOTHING = "nothing about positions"

QUICK = ("duplicate", "recall", "scan")
"""Tasks of `--quick`, which need no file, and on which mechanisms differ."""

NAME = re.compile(r"\w[\w.-]*", re.ASCII)  # Pattern of the name of a mechanism, a part of file names

IMPORTS = ("attnlab.jobs.preflight",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        metavar="OVERRIDE",
        nargs="+",
        help="the mechanism, as for attnlab train: attention=dot attention._target_=cosine.Cosine "
        "+attention.temperature=0.1; or check FILE.csv, followed by the mechanism",
    )
    parser.add_argument("--quick", action="store_true", help=f"one seed of the tasks {', '.join(QUICK)}")
    parser.add_argument(
        "--seeds", type=arguments.positive, default=3, metavar="N", help="number of seeds (default: 3)"
    )
    parser.add_argument(
        "--corpora",
        type=Path,
        default=Path("data"),
        metavar="FOLDER",
        help="folder of the tasks' files; tasks whose files are missing are left out (default: data)",
    )
    parser.add_argument(
        "--download", action="store_true", help="first download files of the tasks that the folder lacks"
    )
    parser.add_argument("--name", help="name of the mechanism in the tables (default: that of its class)")
    parser.add_argument(
        "--built-in",
        default="not stated",
        metavar="TEXT",
        help='what it knows of alignments without training, such as "moves to the right only"',
    )


def main(options: argparse.Namespace) -> int:
    from attnlab.report.benchmark import rules, scores, tables

    first = options.overrides[0]
    if first == "check":
        from attnlab.cli.benchmark_check import check_file

        return check_file(options.overrides[1:], options.corpora, download=options.download)
    if "=" not in first and not first.startswith("~"):
        raise UsageError(f"{first}: neither a setting, KEY=VALUE, nor check FILE.csv")
    from attnlab.cli import check
    from attnlab.config.compose import compose_run, usage_errors
    from attnlab.report.collect import collect

    check.main(options)
    with usage_errors():
        config = compose_run(options.overrides)
    name = options.name or str(config.attention._target_).rpartition(".")[2]
    if not NAME.fullmatch(name):
        raise UsageError(f"--name {name}: use letters and digits of ASCII, and the characters . _ -")
    stored = scores.read(scores.STORED)
    settings = models()
    taken = {each.model for each in stored}
    if name in taken:
        raise UsageError(f"{name} is a mechanism of the stored results: give another --name")
    if same := [model for model in taken if settings[model] == options.overrides]:
        raise UsageError(f"{same[0]} has these settings, and its results are stored: {scores.STORED}")
    options.overrides += _match(options.overrides)
    tasks = [*QUICK] if options.quick else available(options.corpora, download=options.download)
    study = _study(name, options.overrides, config)
    grid = [f"task={','.join(tasks)}", f"seed=range({1 if options.quick else options.seeds})", "model=own"]
    grid.append("callbacks.attention_weights.count=1")
    code = train_runs([f"name={study}", *grid, *options.overrides], options.corpora)
    if code == INTERRUPTED:
        return code
    output = Path(config.paths.output)
    runs = collect([output / study])
    ours = scores.from_runs(runs, options.overrides, name, options.built_in)
    scores.write(ours, output / f"{study}.csv")
    sentences = tables.examples(runs)
    knows = built_in() | {name: options.built_in}
    broken = [*rules.violations(ours, stored), *other_settings(options.overrides)]
    _report(ours, stored, name, output / study, _relative_time(options.overrides), sentences, knows, broken)
    return code


def _study(name: str, overrides: Sequence[str], config: DictConfig) -> str:
    """Return the name of the runs' folder: an edited mechanism, or other settings, get one of their own."""
    from attnlab.files.run_identity import short_hash
    from attnlab.training.own_parts import describe_code

    return f"benchmark_{name}_{short_hash([sorted(overrides), describe_code(config).get('parts')])}"


def _match(overrides: Sequence[str]) -> list[str]:
    """Return the setting with which the decoder's size makes the parameters equal to the reference's.

    It is empty if they differ by less than the rules of the suite allow. Vocabularies add as much to both, so
    that they differ less on each task than here.
    """
    from attnlab.config.compose import compose_run
    from attnlab.jobs.preflight import build_on_meta
    from attnlab.report.benchmark.rules import SIZE_TOLERANCE
    from attnlab.report.benchmark.scores import REFERENCE, SUITE

    own = compose_run([f"study={SUITE}", *overrides])
    if "match" in own.attention:
        return []
    matching = f"+attention@attention.match={REFERENCE}"
    matched = compose_run([f"study={SUITE}", *overrides, matching])
    reference = own.copy()
    reference.attention = matched.attention.match
    ratio = build_on_meta(own).parameter_count / build_on_meta(reference).parameter_count
    if abs(ratio - 1) <= SIZE_TOLERANCE:
        return []
    size = f"{ratio:.2f} of the parameters of {REFERENCE}"
    try:
        build_on_meta(matched)
    except UserError as error:
        print_line(f"{size}, and the decoder's size cannot make up for it: {error}", style="yellow")
        return []
    print_line(f"{size}: the decoder gets another size ({matching})")
    return [matching]


def _relative_time(overrides: Sequence[str]) -> float:
    """Return the time of a training step as a multiple of the reference's, in alternating steps."""
    from attnlab.api.objects import build
    from attnlab.cli import bench
    from attnlab.report.benchmark.scores import REFERENCE, SUITE

    suite = [f"study={SUITE}", "data.task=reverse", "data.train_size=1000"]
    mechanisms = {"": overrides, REFERENCE: [f"attention={REFERENCE}"]}
    systems = {label: build([*suite, *words]) for label, words in mechanisms.items()}
    rows = bench.measure(systems, 5, 10, search=False)
    ours, theirs = (median(seconds for seconds, _ in rows[f"train{label}"]) for label in systems)
    return ours / theirs


def _report(
    ours: Results,
    stored: Results,
    name: str,
    stem: Path,
    time: float,
    sentences: Sequence[Sentence],
    knows: Mapping[str, str],
    broken: Sequence[str],
) -> None:
    """Print the comparison with the stored results, and write it as STEM.html and STEM.tex."""
    from attnlab.files.writing import write_atomically
    from attnlab.report import page
    from attnlab.report.benchmark import scores, tables
    from attnlab.report.figures import StudyFigure

    results = scores.join(ours, stored)
    tests = tables.compare(results, name)
    without = sorted({each.task for each in ours} - {each.task for each in results})
    lines = [
        *tables.describe(results, name, tests),
        f"A training step of reverse takes {time:.2f} times as long as with {scores.REFERENCE} on this "
        f"machine; a training uses at most {max(each.memory for each in ours):,} MB.",
        *(
            [f"Not compared, for lack of stored results of the same data: {', '.join(without)}."]
            if without
            else []
        ),
        tables.NOT_COMPARABLE.format(violations="; ".join(broken))
        if broken
        else tables.CITATION.format(
            name=name,
            tasks=len({task for task, _ in results.scores}),
            seeds=len(ours.seeds(name)),
            digest=scores.stored_digest(),
            models=len(stored.models),
        ),
    ]
    shown = [tables.ranking(results), tables.scores_table(results)]
    knowledge = tables.knowledge_table(results, knows)
    heat_table = StudyFigure("scores", "Scores", shown[1].notes[0], tables.draw(shown[1], name))
    page.write_sections(
        Path(f"{stem}.html"),  # a name may have a point
        title=f"{name} in the benchmark",
        noun="inputs",
        lead="\n".join(lines),
        findings={"Across test inputs": tests},
        figures=[page.figure_section(heat_table)],
        tables=[page.table_section(table) for table in (*shown, knowledge)],
        sentences=page.explorer(sentences, [name, scores.REFERENCE]),
    )
    narrow = tables.by_test_set(shown[1], [name, scores.REFERENCE, "none"])
    write_atomically(Path(f"{stem}.tex"), f"{shown[0].latex()}\n{narrow.latex()}")
    for table in (shown[0], narrow):
        print_table(table.terminal(name))
    for line in (*lines, *(f"wrote {stem}{suffix}" for suffix in (".html", ".tex", ".csv", ".npz"))):
        print_line(line)


def built_in() -> dict[str, str]:
    """Return what the stored mechanisms know without training, by model.

    It is the line `# Built in:` of the options of attention, encoder and decoder.
    """
    from attnlab.config.options import option_text
    from attnlab.report.benchmark.scores import REFERENCE

    texts = {}
    for model, words in models().items():
        chosen = {"attention": REFERENCE} | dict(word.split("=") for word in words)
        options = [option_text(group, chosen[group]) for group in PARTS if group in chosen]
        known = [
            text for option in options for text in re.findall(r"^# Built in: (.+)\.$", option, re.MULTILINE)
        ]
        texts[model] = "; ".join([text for text in known if text != NOTHING] or [NOTHING])
    return texts
