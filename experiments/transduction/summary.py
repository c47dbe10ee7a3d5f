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
from attnlab.report.results_file import format_results, read_results
from attnlab.report.statistics import estimate, holm, t_test_p_value
from attnlab.report.study import SEPARATOR, RunRecord

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

SEEDS = range(3)
"""Seeds of the mechanisms that are compared over seeds."""

JOINT = "all-"
"""Prefix of the variants of one network for all low languages; the rest is the mechanism."""

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


def print_languages(runs: dict[str, list[RunRecord]]) -> None:
    """Print WER of the low languages, and macro averages of the seeds that all of them have."""
    soft, tuned = groups_of("soft_attention.csv"), groups_of("tuned.csv")
    ensembles = {(row["data"], row["split"]): float(row["wer"]) for row in read_ensembles()}
    columns = ("single", "tuned", "ensemble", "soft", "baseline")
    print_caption("Pronunciation, 800 training words, WER")
    print_row("language", "seeds", *(f"{split}: {name}" for split in ("dev", "test") for name in columns))
    print(f"| --- |{' ---: |' * 11}")
    table = []
    for language, baseline in BASELINE.items():
        row: list[float] = []
        for split, reference in zip(("val", "test"), baseline, strict=True):
            single, fine, earlier = (
                fmean(error_rates(own[language], split).values()) for own in (runs, tuned, soft)
            )
            row += [single, fine, ensembles[f"{language}-{RECIPE}", split], earlier, float(reference)]
        table.append(row)
        print_row(language, len(runs[language]), *row)
    print_row("mean", "", *map(fmean, zip(*table, strict=True)))
    print()
    print("Mean over the languages by seed:\n")
    for split, name in (("val", "development"), ("test", "test")):
        for network, groups in (
            ("single", [runs[language] for language in BASELINE]),
            ("one network for all languages", [tuned["joint"]]),
            ("tuned", [tuned[language] for language in BASELINE]),
        ):
            rates = [error_rates(group, split) for group in groups]
            means = (fmean(own[seed] for own in rates) for seed in sorted(rates[0]))
            print(f"- {name} files, {network}: {', '.join(f'{mean:.1f}' for mean in means)}")
    print()


def print_joint() -> None:
    """Print WER and SER of one network for all low languages with each mechanism, and of these together."""
    print_caption("One network for ten languages with each of five mechanisms, seed 0")
    print_row("mechanism", "WER, dev", "WER, test", "SER, dev", "SER, test", "parameters", "minutes")
    print(f"| --- |{' ---: |' * 6}")
    runs = (group[0] for variant, group in groups_of("tuned.csv").items() if variant.startswith(JOINT))
    for run in runs:
        words = (error_rates([run], split)[run.seed] for split in ("val", "test"))
        symbols = (100 * run.scores[f"{split}/ser"] for split in ("val", "test"))
        mechanism, minutes = run.variant.removeprefix(JOINT), (run.seconds or 0) / 60
        print_row(mechanism, *words, *symbols, f"{run.parameters:,}", minutes)
    rows = {row["split"]: row for row in read_ensembles() if row["data"].startswith(JOINT)}
    words = (float(rows[split]["wer"]) for split in ("val", "test"))
    symbols = (100 * float(rows[split]["ser"]) for split in ("val", "test"))
    print_row("five together", *words, *symbols, "", "")
    print()


def print_others(runs: dict[str, list[RunRecord]]) -> None:
    """Print one row for each recipe on other data."""
    print_caption("Inflection of Turkish, 2017")
    print_row("variant", "seeds", "WER, dev", "WER, test", "SER, dev", "SER, test", "steps", "parameters")
    print(f"| --- |{' ---: |' * 7}")
    for variant, group in sorted(runs.items()):
        words = [fmean(error_rates(group, split).values()) for split in ("val", "test")]
        symbols = [100 * fmean(run.scores[f"{split}/ser"] for run in group) for split in ("val", "test")]
        print_row(variant, len(group), *words, *symbols, f"{group[0].steps:,}", f"{group[0].parameters:,}")
    print()


def print_normalisation() -> None:
    """Print error rates of memorising and of the networks, by corpus."""
    names = ("all", "known", "unknown")
    print_caption("Normalisation, WER on the development files")
    rates = (f"{by}: {name}" for by in ("memorise", "network") for name in names)
    print_row("corpus", "network", "words", "unknown", *rates)
    print(f"| --- | --- |{' ---: |' * 8}")
    with (FOLDER / "normalisation.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            counts = (f"{int(row[name]):,}" for name in ("words", "unknown_words"))
            rates = (float(row[name]) for name in NORMALISATION[5:11])
            print_row(row["corpus"], row["mechanism"], *counts, *rates)
    print()


def print_inflection(runs: dict[str, list[RunRecord]]) -> None:
    """Print the accuracy and SER of the development files of inflection, by language, and their means."""
    print_caption("Inflection of 2023, development files")
    print_row("language", "accuracy", "SER", "minutes")
    print(f"| --- |{' ---: |' * 3}")
    rows = []
    for language, (run,) in sorted(runs.items()):
        accuracy, symbols = (100 * run.scores[f"val/{name}"] for name in ("exact_match", "ser"))
        rows.append((accuracy, symbols, (run.seconds or 0) / 60))
        print_row(language, *rows[-1])
    print_row(f"mean of {len(rows)}", *map(fmean, zip(*rows, strict=True)))
    print()


def print_medium(runs: dict[str, list[RunRecord]]) -> None:
    """Print WER and SER of the medium languages, development files, and their means."""
    print_caption("Pronunciation, 8,000 training words")
    print_row("language", "WER, dev", "SER, dev", "baseline", "minutes")
    print(f"| --- |{' ---: |' * 4}")
    rows = []
    for language, baseline in MEDIUM_BASELINE.items():
        (run,) = runs[language]
        symbols = 100 * run.scores["val/ser"]
        rows.append((*error_rates([run], "val").values(), symbols, baseline, (run.seconds or 0) / 60))
        print_row(language, *rows[-1])
    print_row("mean", *map(fmean, zip(*rows, strict=True)))
    print()


def study_runs() -> dict[str, dict[str, dict[int, RunRecord]]]:
    """Return the runs of the study by mechanism, corpus and seed."""
    runs: defaultdict[str, defaultdict[str, dict[int, RunRecord]]] = defaultdict(lambda: defaultdict(dict))
    for run in read_results(FOLDER / "study.csv").finished:
        corpus, _, mechanism = run.variant.partition(SEPARATOR)[0].rpartition("-")
        runs[mechanism][corpus][run.seed] = run
    return {mechanism: dict(own) for mechanism, own in sorted(runs.items())}


def print_study(
    runs: dict[str, dict[str, dict[int, RunRecord]]],
    corpora: list[str],
    split: str,
    caption: str,
    together: dict[str, tuple[float, float]],
) -> None:
    """Print WER by corpus and mechanism, and the differences to the reference, seed 0.

    Args:
        runs: by mechanism, corpus and seed.
        corpora: those of the table.
        split: `val` or `test`.
        caption: the line above the tables.
        together: WER and SER of the ensemble of five mechanisms by corpus, if there are any.
    """
    mechanisms = [REFERENCE, *(name for name in runs if name != REFERENCE)]
    rates = {name: [error_rates([runs[name][each][0]], split)[0] for each in corpora] for name in mechanisms}
    columns = ["five together"] if together else []
    print_caption(caption)
    print_row("data", *mechanisms, *columns)
    print(f"| --- |{' ---: |' * (len(mechanisms) + len(columns))}")
    for corpus, *row in zip(corpora, *rates.values(), strict=True):
        print_row(corpus, *row, *(together[corpus][0] for _ in columns))
    differences = {
        name: [ours - theirs for ours, theirs in zip(rates[name], rates[REFERENCE], strict=True)]
        for name in mechanisms[1:]
    }
    p_values = dict(
        zip(differences, holm([t_test_p_value(own) for own in differences.values()]), strict=True)
    )
    print()
    print_row("mechanism", "mean WER", f"minus {REFERENCE}", "p, Holm", "mean SER", "parameters", "minutes")
    print(f"| --- |{' ---: |' * 6}")
    for name in mechanisms:
        cells = ["", ""]
        if name in differences:
            change = estimate(differences[name])
            cells = [
                f"{change.mean:.1f} \\[{change.low:.1f}, {change.high:.1f}\\]",
                f"{p_values[name]:.2f}",
            ]
        own = [runs[name][each][0] for each in corpora]
        symbols = 100 * fmean(run.scores[f"{split}/ser"] for run in own)
        minutes = fmean((run.seconds or 0) / 60 for run in own)
        print_row(name, fmean(rates[name]), *cells, symbols, f"{own[0].parameters:,}", minutes)
    if together:
        words, symbols = (fmean(each) for each in zip(*together.values(), strict=True))
        print_row("five together", words, "", "", 100 * symbols, "", "")
    print()


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


def print_seeds(
    runs: dict[str, dict[str, dict[int, RunRecord]]], corpora: Iterable[str], split: str, caption: str
) -> None:
    """Print WER by mechanism and seed, and the differences to the reference."""
    shared, means = seed_means(runs, corpora, split)
    others = [name for name in means if name != REFERENCE]
    p_values = holm([ttest_ind(means[name], means[REFERENCE], equal_var=False).pvalue for name in others])
    print_caption(f"{caption} of {', '.join(shared)}")
    print_row("mechanism", *(f"seed {seed}" for seed in SEEDS), "mean", f"minus {REFERENCE}", "p, Holm")
    print(f"| --- |{' ---: |' * (len(SEEDS) + 3)}")
    print_row(REFERENCE, *means[REFERENCE], fmean(means[REFERENCE]), "", "")
    for name, p in zip(others, p_values, strict=True):
        mean = fmean(means[name])
        p_value = f"{p:.3f}" if p >= 0.001 else "< 0.001"
        print_row(name, *means[name], mean, mean - fmean(means[REFERENCE]), p_value)
    print()


def complete(runs: dict[str, dict[str, dict[int, RunRecord]]]) -> list[str]:
    """Return the corpora that have been given to every mechanism with seed 0, in the order of the study."""
    shared = set.intersection(
        *({corpus for corpus, own in each.items() if 0 in own} for each in runs.values())
    )
    return sorted(shared, key=[*runs[REFERENCE]].index)


def mixed_ensembles() -> dict[str, tuple[float, float]]:
    """Return WER and SER of five mechanisms together on the test files, by language."""
    rates = {}
    for row in read_ensembles():
        language, _, first = row["data"].rpartition("-")
        if first != RECIPE and not row["data"].startswith(JOINT):
            rates[language] = (float(row["wer"]), float(row["ser"]))
    return rates


if __name__ == "__main__":
    if sys.argv[1:]:
        folders = [Path(folder) for folder in sys.argv[1:]]
        write_results(folders)
        write_normalisation(folders)
    study = study_runs()
    corpora = complete(study)
    print_languages({language: [*own.values()] for language, own in study[RECIPE].items()})
    print_joint()
    print_medium(groups_of("medium.csv"))
    print_others(groups_of("results.csv"))
    print_normalisation()
    print_inflection(groups_of("inflection.csv"))
    low = [each for each in corpora if each in BASELINE]
    others = [each for each in corpora if each not in BASELINE]
    print_study(
        study, low, "test", "Pronunciation with eight mechanisms, WER on the test files", mixed_ensembles()
    )
    print_study(study, others, "val", "Other words with eight mechanisms, WER on the development files", {})
    print_seeds(study, BASELINE, "test", "Pronunciation over seeds, mean WER on the test files")
    print_seeds(study, INFLECTION, "val", "Inflection over seeds, mean WER on the development files")
    print_seeds(study, CORPORA, "val", "Normalisation over seeds, mean WER on the development files")
