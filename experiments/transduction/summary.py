"""Print the tables of this folder's README from its CSV files.

python summary.py [RUNS ...]: with the folders of the run directories, write before: results.csv from the
runs with the name g2p_low, ensembles.csv from their evaluations, medium.csv from g2p_medium, inflection.csv
from tur_2017 and inflection_2023, and normalisation.csv from normalisation_full.
"""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from memorise import memorise, rates_apart, read

from attnlab.files.predictions import read_predictions
from attnlab.report.collect import collect
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import Study
from attnlab.report.tables import mean_and_range

FOLDER = Path(__file__).parent
NORMALISATION = (
    *("corpus", "seed", "words", "unknown_words"),
    *("memorised", "memorised_known", "memorised_unknown", "network", "network_known", "network_unknown"),
    *("parameters", "steps", "minutes", "commit"),
)
"""Columns of normalisation.csv; error rates are percentages of the words of the development file."""

CORPORA = ("swedish-gaw", "slovene-goo300k-bohoric", "icelandic-icepahc", "german-ridges")
"""Corpora of normalisation."""

FILES = {
    "g2p_low": "results.csv",
    "g2p_medium": "medium.csv",
    "tur_2017": "inflection.csv",
    "inflection_2023": "inflection.csv",
}
"""File of the results of the runs with each name."""

SPLITS = {"val": "development", "test": "test"}
"""Names of the splits."""


def write_results(folders: list[Path]) -> None:
    """Write the files of results, and ensembles.csv from `attnlab evaluate RUN RUN …`."""
    study = collect(folders)
    for file in dict.fromkeys(FILES.values()):
        runs = [run for run in study.finished if FILES.get(run.config["name"]) == file]
        (FOLDER / file).write_text(format_results(replace(study, runs=runs)))
    write_normalisation(study)
    with (FOLDER / "ensembles.csv").open("w", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(("language", "members", "split", "wer", "ser"))
        for path in sorted(path for folder in folders for path in folder.glob("*/evaluations/*/result.json")):
            result = json.loads(path.read_text())
            split, scores = result["split"], result["metrics"]
            members = 1 + len(result["ensemble_with"])
            language = path.parents[2].name.partition("-seed")[0]
            writer.writerow((language, members, split, scores[f"{split}/wer"], scores[f"{split}/ser"]))


def write_normalisation(study: Study) -> None:
    """Write normalisation.csv: error rates of networks, and of memorising their training files."""
    with (FOLDER / "normalisation.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(NORMALISATION)
        for run in study.finished:
            if run.config["name"] != "normalisation_full":
                continue
            pairs = read(run.config["data"]["val"])
            table = memorise(read(run.config["data"]["train"]))
            predictions = read_predictions(run.directory / "predictions" / "val.jsonl")
            output_of = {each.source: each.hypothesis for each in predictions}
            networks = [(word, norm, output_of[word]) for word, norm in pairs]
            memorised = [(word, norm, table.get(word, word)) for word, norm in pairs]
            unknown = sum(word not in table for word, _ in pairs)
            rates = (*rates_apart(memorised, table), *rates_apart(networks, table))
            numbers = (run.parameters, run.steps, round((run.seconds or 0) / 60, 2), run.commit)
            shown = (f"{rate:.2f}" for rate in rates)
            writer.writerow((run.variant, run.seed, len(pairs), unknown, *shown, *numbers))


def error_rates(file: str, split: str) -> dict[str, list[float]]:
    """Return the WER of each seed by variant, where a run has this split; exact match is its complement."""
    rates: dict[str, list[float]] = {}
    for run in read_results(FOLDER / file).finished:
        if (right := run.scores.get(f"{split}/exact_match")) is not None:
            rates.setdefault(run.variant, []).append(100 * (1 - right))
    return rates


def ensemble_rates(split: str) -> dict[str, float]:
    """Return the WER of the ensemble of each language."""
    with (FOLDER / "ensembles.csv").open(newline="") as file:
        return {row["language"]: float(row["wer"]) for row in csv.DictReader(file) if row["split"] == split}


def official_rates(setting: str, split: str) -> dict[str, float]:
    """Return the WER of the official ensemble of ten of SIGMORPHON 2021 by language, from official.csv."""
    with (FOLDER / "official.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["setting"] == setting]
    return {row["language"]: float(row[split]) for row in rows}


def print_caption(text: str) -> None:
    """Print the line above a table."""
    print(f"{text}:\n")


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table; numbers with one decimal."""
    print(f"| {' | '.join(f'{cell:.1f}' if isinstance(cell, float) else str(cell) for cell in cells)} |")


def print_pronunciation() -> None:
    """Print the WER of each language with little data, and the mean."""
    rates = {split: error_rates("results.csv", split) for split in SPLITS}
    ensembles = {split: ensemble_rates(split) for split in SPLITS}
    official = {split: official_rates("low", split) for split in SPLITS}
    seeds = len(next(iter(rates["val"].values())))
    print_caption(f"Pronunciation, 800 training words, WER, {seeds} seeds and their ensemble")
    kinds = ("one network", "ensemble", "official")
    print_row("language", *(f"{kind}, {name}" for name in SPLITS.values() for kind in kinds))
    print(f"| --- |{' ---: |' * 6}")
    rows = {
        language: [
            rate
            for split in SPLITS
            for rate in (
                fmean(rates[split][language]),
                ensembles[split][language],
                official[split][language],
            )
        ]
        for language in official["val"]
    }
    for language, row in rows.items():
        print_row(language, *row)
    print_row("mean", *map(fmean, zip(*rows.values(), strict=True)))
    by_seed = [fmean(own) for own in zip(*rates["test"].values(), strict=True)]
    print(f"\nMean of the test files by seed: {', '.join(f'{rate:.1f}' for rate in by_seed)}.\n")


def print_medium() -> None:
    """Print the mean WER of the medium languages, development files."""
    rates, official = error_rates("medium.csv", "val"), official_rates("medium", "val")
    mean = fmean(fmean(rates[language]) for language in official)
    print(
        f"Pronunciation, 8,000 training words, {len(official)} development files: WER {mean:.1f}, "
        f"official ensemble {fmean(official.values()):.1f}.\n"
    )


def print_inflection() -> None:
    """Print the accuracy of Turkish, and that of each language of 2023."""
    small = [100 - rate for rate in error_rates("inflection.csv", "test")["tur_2017"]]
    print(f"Inflection, 1,000 Turkish words: {mean_and_range(small, digits=1)} % right, test.\n")
    right = {
        language: 100 - rate
        for language, (rate, *_) in error_rates("inflection.csv", "val").items()
        if language != "tur_2017"
    }
    each = ", ".join(f"{language} {share:.1f}" for language, share in right.items())
    print(f"Inflection, 10,000 words, % right, development: {each}; mean {fmean(right.values()):.1f}.\n")


def print_normalisation() -> None:
    """Print the WER of memorising and of the networks of normalisation.csv, development files."""
    print_caption("Normalisation with the whole training files, WER, development files")
    print_row("corpus", "memorised", "network", "known words", "unknown words")
    print(f"| --- |{' ---: |' * 4}")
    with (FOLDER / "normalisation.csv").open(newline="") as file:
        rows = {
            row["corpus"]: [
                float(row[name]) for name in ("memorised", "network", "network_known", "network_unknown")
            ]
            for row in csv.DictReader(file)
        }
    for corpus, rates in rows.items():
        print_row(corpus, *rates)
    print_row("mean", *map(fmean, zip(*rows.values(), strict=True)))


if __name__ == "__main__":
    if sys.argv[1:]:
        write_results([Path(folder) for folder in sys.argv[1:]])
    print_pronunciation()
    print_medium()
    print_inflection()
    print_normalisation()

    import learning_curve  # which imports this module

    learning_curve.main()
