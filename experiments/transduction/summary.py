"""Print the tables of this folder's README from its CSV files.

python summary.py [RUNS ...]: with the folders of the run directories, write results.csv and ensembles.csv
before, study.csv from the runs of `study=transduction` among them, normalisation.csv from those of
`experiment=normalisation` with the variants CORPUS-MECHANISM, and inflection.csv, medium.csv and tuned.csv
from those with the names inflection_2023, g2p_medium, and g2p_joint and g2p_tuned.
"""

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from memorise import memorise, rates_apart, read
from scipy.stats import ttest_ind

from attnlab.files.predictions import read_predictions
from attnlab.report.collect import collect
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results
from attnlab.report.statistics import holm
from attnlab.report.variants import SEPARATOR

FOLDER = Path(__file__).parent
BASELINE = {
    "ady": (22, 22),
    "gre": (5, 21),
    "ice": (11, 12),
    "ita": (22, 19),
    "khm": (34, 34),
    "lav": (41, 55),
    "mlt_latn": (20, 19),
    "rum": (10, 10),
    "slv": (43, 49),
    "wel_sw": (16, 10),
}
"""WER of the ensemble of ten of SIGMORPHON 2021, development and test, by language."""

MEDIUM_BASELINE = {
    "arm_e": 4.5,
    "bul": 8.3,
    "dut": 10.8,
    "fre": 7.4,
    "geo": 0.0,
    "hbs_latn": 34.7,
    "hun": 1.5,
    "jpn_hira": 6.2,
    "kor": 18.4,
    "vie_hanoi": 1.3,
}
"""WER of that ensemble on the development files of the medium setting."""

NORMALISATION = (
    *("corpus", "mechanism", "seed", "words", "unknown_words"),
    *("memorised", "memorised_known", "memorised_unknown", "network", "network_known", "network_unknown"),
    *("parameters", "steps", "minutes", "commit"),
)
"""Columns of normalisation.csv; error rates are percentages of the words of the development file."""

CORPORA = ("swedish-gaw", "slovene-goo300k-bohoric", "icelandic-icepahc", "german-ridges")
"""Corpora of normalisation."""

INFLECTION = ("tur", "fin", "arz", "deu", "swa")
"""Languages of inflection in the study."""

TASKS = {
    "pronunciation": (BASELINE, "test"),
    "inflection": (INFLECTION, "val"),
    "normalisation": (CORPORA, "val"),
}
"""Corpora and split of each task in the study over seeds."""

SEEDS = range(3)
"""Seeds of the mechanisms that are compared over seeds."""

STUDY, REFERENCE, RECIPE = "transduction", "additive", "hard_order_1"
"""Name of the study, the mechanism that the others are compared with, and that of `experiment=g2p`."""


def write_results(folders: list[Path]) -> None:
    """Write the files of results, and ensembles.csv from `attnlab evaluate RUN RUN …`."""
    study = collect(folders)
    for file in ("results.csv", "study.csv", "inflection.csv", "medium.csv", "tuned.csv"):
        runs = [run for run in study.finished if file_of(run) == file]
        (FOLDER / file).write_text(format_results(replace(study, runs=runs)))
    with (FOLDER / "ensembles.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("data", "members", "split", "wer", "ser"))
        for path in sorted(path for folder in folders for path in folder.glob("*/evaluations/*/result.json")):
            result = json.loads(path.read_text())
            split, scores = result["split"], result["metrics"]
            members = 1 + len(result["ensemble_with"])
            language = path.parents[2].name.partition("-seed")[0]
            writer.writerow((language, members, split, scores[f"{split}/wer"], scores[f"{split}/ser"]))


def file_of(run: RunRecord) -> str:
    """Return the name of the results file that a run belongs to."""
    if run.study == STUDY:
        return "study.csv"
    files = {
        "normalisation": "normalisation.csv",
        "inflection_2023": "inflection.csv",
        "g2p_medium": "medium.csv",
        "g2p_joint": "tuned.csv",
        "g2p_tuned": "tuned.csv",
    }
    return files.get(run.config["name"], "results.csv")


def write_normalisation(folders: list[Path]) -> None:
    """Write normalisation.csv: error rates of networks, and of memorising their training files."""
    with (FOLDER / "normalisation.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(NORMALISATION)
        for run in collect(folders).finished:
            if run.config["name"] != "normalisation":
                continue
            table = memorise(read(run.config["data"]["train"]))
            predictions = read_predictions(run.directory / "predictions" / "val.jsonl")
            networks = [(each.source, each.references[0], each.hypothesis) for each in predictions]
            memorised = [(word, norm, table.get(word, word)) for word, norm, _ in networks]
            unknown = sum(word not in table for word, *_ in networks)
            rates = (*rates_apart(memorised, table), *rates_apart(networks, table))
            numbers = (run.parameters, run.steps, round((run.seconds or 0) / 60, 2), run.commit)
            shown = (f"{rate:.2f}" for rate in rates)
            corpus, _, mechanism = run.variant.rpartition("-")
            writer.writerow((corpus, mechanism, run.seed, len(networks), unknown, *shown, *numbers))


def groups_of(name: str) -> dict[str, list[RunRecord]]:
    """Return the runs of a results file by data."""
    groups: defaultdict[str, list[RunRecord]] = defaultdict(list)
    for run in read_results(FOLDER / name).finished:
        groups[run.variant.partition(SEPARATOR)[0]].append(run)
    return groups


def read_ensembles() -> list[dict[str, str]]:
    """Return the rows of ensembles.csv: `data` is LANGUAGE-MECHANISM of the first member."""
    with (FOLDER / "ensembles.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def error_rates(runs: list[RunRecord], split: str) -> dict[int, float]:
    """Return WER by seed; exact match is its complement."""
    return {run.seed: 100 * (1 - run.scores[f"{split}/exact_match"]) for run in runs}


def print_caption(text: str) -> None:
    """Print the line above a table."""
    print(f"{text}:\n")


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table; numbers with one decimal."""
    print(f"| {' | '.join(f'{cell:.1f}' if isinstance(cell, float) else str(cell) for cell in cells)} |")


SPLITS = {"val": "development", "test": "test"}
"""Names of the splits."""


def print_languages(runs: dict[str, list[RunRecord]]) -> None:
    """Print the mean WER of the low languages, and macro averages of the seeds that all of them have."""
    soft, tuned = groups_of("soft_attention.csv"), groups_of("tuned.csv")
    ensembles = {(row["data"], row["split"]): float(row["wer"]) for row in read_ensembles()}
    print_caption("Pronunciation, 800 training words, mean WER of ten languages")
    print_row("files", "single", "tuned", "ensemble", "soft", "baseline")
    print(f"| --- |{' ---: |' * 5}")
    for number, (split, name) in enumerate(SPLITS.items()):
        table = []
        for language, baseline in BASELINE.items():
            rates = (fmean(error_rates(own[language], split).values()) for own in (runs, tuned, soft))
            single, fine, earlier = rates
            ensemble = ensembles[f"{language}-{RECIPE}", split]
            table.append((single, fine, ensemble, earlier, float(baseline[number])))
        print_row(name, *map(fmean, zip(*table, strict=True)))
    print()


def print_inflection(runs: dict[str, list[RunRecord]]) -> None:
    """Print the mean accuracy and SER of the development files of inflection."""
    scores = [
        [100 * run.scores[f"val/{name}"] for name in ("exact_match", "ser")] for (run,) in runs.values()
    ]
    accuracy, symbols = map(fmean, zip(*scores, strict=True))
    print(f"Inflection of 2023, {len(scores)} languages: accuracy {accuracy:.1f} %, SER {symbols:.1f}.\n")


def print_medium(runs: dict[str, list[RunRecord]]) -> None:
    """Print the mean WER and SER of the medium languages, development files."""
    rows = [
        (*error_rates(runs[language], "val").values(), 100 * runs[language][0].scores["val/ser"], baseline)
        for language, baseline in MEDIUM_BASELINE.items()
    ]
    words, symbols, baseline = map(fmean, zip(*rows, strict=True))
    print(
        f"Pronunciation, 8,000 training words, {len(rows)} development files: WER {words:.1f}, "
        f"SER {symbols:.1f}, WER of the baseline {baseline:.1f}.\n"
    )


def print_normalisation() -> None:
    """Print the mean WER of the networks of normalisation.csv, development files."""
    with (FOLDER / "normalisation.csv").open(newline="") as file:
        rates: defaultdict[str, list[float]] = defaultdict(list)
        for row in csv.DictReader(file):
            rates[row["mechanism"]].append(float(row["network"]))
    means = ", ".join(f"{fmean(own):.1f} `{mechanism}`" for mechanism, own in rates.items())
    print(f"Normalisation, 6,000 steps, seed 0, mean WER of {len(CORPORA)} corpora: {means}.\n")


def study_runs() -> dict[str, dict[str, dict[int, RunRecord]]]:
    """Return the runs of the study by mechanism, corpus and seed."""
    runs: defaultdict[str, defaultdict[str, dict[int, RunRecord]]] = defaultdict(lambda: defaultdict(dict))
    for run in read_results(FOLDER / "study.csv").finished:
        corpus, _, mechanism = run.variant.partition(SEPARATOR)[0].rpartition("-")
        runs[mechanism][corpus][run.seed] = run
    return {mechanism: dict(own) for mechanism, own in sorted(runs.items())}


def seed_means(
    runs: dict[str, dict[str, dict[int, RunRecord]]], corpora: Iterable[str], split: str
) -> tuple[list[str], dict[str, list[float]]]:
    """Return the corpora on which all mechanisms have all seeds, and the mean WER of each mechanism and seed.

    Mechanisms that have all seeds on no corpus are left out.
    """
    rates = {
        name: {
            corpus: error_rates([*own[corpus].values()], split)
            for corpus in corpora
            if set(SEEDS) <= set(own[corpus])
        }
        for name, own in runs.items()
    }
    rates = {name: own for name, own in rates.items() if own}
    shared = [corpus for corpus in corpora if all(corpus in own for own in rates.values())]
    return shared, {
        name: [fmean(own[corpus][seed] for corpus in shared) for seed in SEEDS] for name, own in rates.items()
    }


def print_seeds(runs: dict[str, dict[str, dict[int, RunRecord]]]) -> None:
    """Print the mean WER of each mechanism with each seed, and p of its difference to the reference."""
    cells: dict[str, list[str]] = {}
    for corpora, split in TASKS.values():
        _, means = seed_means(runs, corpora, split)
        others = [name for name in means if name != REFERENCE]
        tests = [ttest_ind(means[name], means[REFERENCE], equal_var=False).pvalue for name in others]
        p_values = dict(zip(others, holm(tests), strict=True))
        for name, rates in means.items():
            p = p_values.get(name)
            shown = "" if p is None else f" ({p:.3f})" if p >= 0.001 else " (< 0.001)"
            cells.setdefault(name, []).append(f"{', '.join(f'{rate:.1f}' for rate in rates)}{shown}")
    print_caption("WER with the seeds 0, 1 and 2, and p (Holm) of the difference to `additive`")
    print_row("mechanism", *TASKS)
    print(f"| --- |{' ---: |' * len(TASKS)}")
    for name, row in cells.items():
        print_row(name, *row)


if __name__ == "__main__":
    if sys.argv[1:]:
        folders = [Path(folder) for folder in sys.argv[1:]]
        write_results(folders)
        write_normalisation(folders)
    study = study_runs()
    print_languages({language: [*own.values()] for language, own in study[RECIPE].items()})
    print_medium(groups_of("medium.csv"))
    print_inflection(groups_of("inflection.csv"))
    print_normalisation()
    print_seeds(study)

    import learning_curve  # which imports this module

    learning_curve.main()
