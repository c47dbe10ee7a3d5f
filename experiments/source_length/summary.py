"""Print the tables of this folder's README from lengths.csv and slopes.csv.

python summary.py [OUTPUTS]: with the folder that contains the studies of `DATA`, write these files first.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnlab.metrics import registry
from attnlab.metrics.sentence_counts import Counts, SentenceCounts
from attnlab.report.collect import collect
from attnlab.report.record import RunRecord
from attnlab.report.resampling import percentiles, resampled
from attnlab.report.results_file import format_results
from attnlab.report.study import Study
from attnlab.report.tables import markdown

HERE = Path(__file__).parent
RESULTS, LENGTHS, SLOPES = (HERE / name for name in ("results.csv", "lengths.csv", "slopes.csv"))
DATA = {
    "eng_mar_sizes": ("English to Marathi", (1, 4, 5, 6, 7, 9)),
    "multi30k_lengths": ("Multi30k, German to English", (1, 9, 11, 13, 15, 18)),
}
"""Title of each study, and the smallest number of source words of each of its groups of sentences."""
METRICS = ("test/bleu", "test/chrf")
VARIANTS = ("additive", "none_matched")
DIFFERENCE = f"{VARIANTS[0]} - {VARIANTS[1]}"


def main(outputs: str | None = None) -> None:
    """Print Markdown."""
    if outputs is not None:
        write_files(Path(outputs))
    lengths, slopes = read(LENGTHS), read(SLOPES)
    for study, (title, _) in DATA.items():
        rows = [row for row in lengths if row["study"] == study]
        if rows:
            print(f"### {title}\n\n{table(rows, [row for row in slopes if row['study'] == study])}")


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_files(outputs: Path) -> None:
    """Write the runs, the scores of each group of sentences, and the slopes."""
    runs: list[RunRecord] = []
    lengths, slopes = ["study,metric,variant,words,sentences,score"], ["study,metric,variant,slope,low,high"]
    for name, (_, starts) in DATA.items():
        if not (outputs / name).is_dir():
            continue
        variants = collect([outputs / name]).by_variant()
        chosen = {variant: variants[variant] for variant in VARIANTS}
        runs += [run for group in chosen.values() for run in group]
        for metric in METRICS:
            groups = Groups(chosen, metric, starts)
            lengths += [f"{name},{metric},{line}" for line in groups.scores()]
            slopes += [f"{name},{metric},{line}" for line in groups.slopes()]
    RESULTS.write_text(format_results(Study("source_length", runs)))
    LENGTHS.write_text("\n".join(lengths) + "\n")
    SLOPES.write_text("\n".join(slopes) + "\n")


class Groups:
    """Corpus scores of groups of sentences with similar source lengths, of all seeds of a variant together.

    Args:
        variants: runs of each variant, all with the same test set.
        metric: a corpus score.
        starts: smallest number of source words of each group.
    """

    def __init__(self, variants: dict[str, list[RunRecord]], metric: str, starts: Sequence[int]) -> None:
        first = variants[VARIANTS[0]][0]
        sources = [prediction.source for prediction in first.predictions["test"]]
        score = registry.metric(metric).sentence_counts(first.tokenizer(metric))
        assert score is not None
        self.score: SentenceCounts = score
        self.counts: dict[str, Counts] = {}  # [N, C]
        for variant, runs in variants.items():
            outputs = [run.predictions["test"] for run in runs]
            assert all([prediction.source for prediction in each] == sources for each in outputs)
            self.counts[variant] = np.sum([score.count(each) for each in outputs], axis=0)
        self.words = np.array([len(source.split()) for source in sources])  # [N]
        self.groups = np.searchsorted(starts, self.words, side="right") - 1  # [N]
        self.starts = starts

    def scores(self) -> Iterator[str]:
        """Yield the variant, the range of words, the number of sentences and the score of each group."""
        for variant, counts in self.counts.items():
            for group in np.unique(self.groups):
                rows = self.groups == group
                last = self.words[rows].max()
                words = (
                    f"{self.starts[group]}" if last == self.starts[group] else f"{self.starts[group]}–{last}"
                )
                yield f"{variant},{words},{rows.sum()},{self.score.value(counts[rows].sum(axis=0))}"

    def slopes(self) -> Iterator[str]:
        """Yield the slope of each variant and of their difference, with 95 % bootstrap intervals."""
        once = np.ones((1, len(self.words)))
        drawn = [once, *resampled(len(self.words))]
        slopes = {
            variant: [self.slope(counts, each) for each in drawn] for variant, counts in self.counts.items()
        }
        ours, theirs = (slopes[variant] for variant in VARIANTS)
        slopes[DIFFERENCE] = [our - their for our, their in zip(ours, theirs, strict=True)]
        for variant, (observed, *others) in slopes.items():
            low, high = percentiles(others)
            yield f"{variant},{observed[0]},{low},{high}"

    def slope(self, counts: Counts, often: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the slopes [R] of the groups' scores by their mean numbers of words, in points per word.

        A resample with sentences of one group only has the slope 0.

        Args:
            counts: counts [N, C] of the sentences.
            often: how often each sentence is in each resample, [R, N].
        """
        members = [self.groups == group for group in np.unique(self.groups)]
        weights = np.stack([often[:, rows].sum(axis=1) for rows in members])  # [G, R]
        sums = np.stack([often[:, rows] @ self.words[rows] for rows in members])  # [G, R]
        scores = np.stack([self.score.value(often[:, rows] @ counts[rows]) for rows in members])  # [G, R]
        present, share = weights > 0, weights / weights.sum(axis=0)
        words = sums / np.maximum(weights, 1) - sums.sum(axis=0) / weights.sum(axis=0)  # centred
        spread = np.where(present, share * words**2, 0).sum(axis=0)
        covariance = np.where(present, share * words * scores, 0).sum(axis=0)
        return np.divide(covariance, spread, out=np.zeros_like(spread), where=spread > 0)


def table(lengths: Sequence[dict[str, str]], slopes: Sequence[dict[str, str]]) -> str:
    """Return a Markdown table with the scores of each variant by source length, and their slopes."""
    words = {row["words"]: row["sentences"] for row in lengths}
    columns = ["score", "attention", *(f"{each} words ({count})" for each, count in words.items())]
    rows = []
    for slope in slopes:
        metric, variant = slope["metric"], slope["variant"]
        found = {
            row["words"]: float(row["score"])
            for row in lengths
            if (row["metric"], row["variant"]) == (metric, variant)
        }
        shown = [f"{found[each]:.1f}" if found else "" for each in words]
        value, low, high = (float(slope[name]) for name in ("slope", "low", "high"))
        interval = f"{value:.2f} [{low:.2f}, {high:.2f}]"
        rows.append([registry.metric(metric).title, variant, *shown, interval])
    note = "In brackets: test sentences, and 95 % intervals of the bootstrap over them (all seeds together)."
    frame = pd.DataFrame(rows, columns=[*columns, "points per word"])
    return markdown(frame.set_index(columns[:2]), [note])


if __name__ == "__main__":
    main(*sys.argv[1:])
