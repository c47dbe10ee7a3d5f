"""Scores of runs of `study=benchmark_v1`, and their files.

Two files hold the results of any number of runs::

    FILE.csv    a line per run and test set: scores, costs, digests of the data, code and machine
    FILE.npz    the counts per input [R, N, C] of the primary metric: an array for each task and test set,
                with the R runs in the order of the lines of FILE.csv

The counts suffice for every score, test and aggregate, so that mechanisms are compared without training.
"""

import csv
import hashlib
import io
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pooch
from numpy.typing import NDArray

from attnlab.errors import UserError
from attnlab.files.writing import open_atomically, write_atomically
from attnlab.metrics import registry
from attnlab.metrics.sentence_counts import SentenceCounts
from attnlab.report.study import Study

STORED = Path(__file__).with_name("v1.csv")  # Results of version 1 that are part of the package
FILES = STORED.with_suffix(".txt")  # Registry of pooch with the files of the tasks that can be downloaded

SUITE = "benchmark_v1"
REFERENCE = "additive"
DAMAGES = (zipfile.BadZipFile, zlib.error)  # What reading a damaged .npz file raises besides other errors
SAME = ("test", "test/same", "test/held_out")
"""Test sets with the distribution of the training data; the others are shifted."""

LEAST_SEEDS = 3  # Smallest number of seeds of tests over seeds, and of a submitted mechanism
PACKAGES = ("python", "torch", "attnlab")  # Their versions are recorded
Cell = tuple[str, str]  # A task and one of its test sets


@dataclass(frozen=True)
class Score:
    """Score of one run on one test set."""

    task: str
    model: str
    seed: int
    split: str  # such as "test" or "test/longer"
    metric: str  # primary metric of the task
    score: float  # on a scale of 0 to 100
    inputs: int
    parameters: int
    steps: int
    seconds: float  # of the training
    memory: int  # MB of its process, at most
    data: str  # SHA-256 of the pairs, its first 16 digits
    train: str  # that of the training pairs
    commit: str
    cpu: str
    versions: str
    overrides: str  # settings of a custom mechanism
    code: str  # SHA-256 of the code of its parts from outside, their first 16 digits
    built_in: str  # what a custom mechanism knows without training
    outputs: str  # SHA-256 of the outputs, its first 16 digits
    counts: NDArray[np.uint16] = field(repr=False, compare=False)  # of the primary metric, [N, C]

    @property
    def cell(self) -> Cell:
        """The task and the test set."""
        return self.task, self.split


COLUMNS = tuple(each.name for each in fields(Score) if each.name != "counts")
INTEGERS = tuple(each.name for each in fields(Score) if each.type is int)


class Results:
    """Scores of several models."""

    def __init__(self, scores: Iterable[Score]) -> None:
        self.scores: dict[Cell, dict[str, dict[int, Score]]] = {}
        for each in scores:
            self.scores.setdefault(each.cell, {}).setdefault(each.model, {})[each.seed] = each

    def __iter__(self) -> Iterator[Score]:
        for by_model in self.scores.values():
            for by_seed in by_model.values():
                yield from by_seed.values()

    @property
    def models(self) -> list[str]:
        """Models with a score on every test set, and the same seed on all of them."""
        return [model for model in dict.fromkeys(each.model for each in self) if self.seeds(model)]

    def seeds(self, *models: str) -> list[int]:
        """Return the seeds that models have on every test set."""
        return sorted(set.intersection(*({*by.get(m, {})} for by in self.scores.values() for m in models)))

    def only(self, cells: Iterable[Cell]) -> "Results":
        """Return the scores on some test sets."""
        kept = {*cells}
        return Results(each for each in self if each.cell in kept)

    def matrix(self, model: str, *, shifted: bool) -> NDArray[np.float64]:
        """Return the scores of a model [R, M] on the test sets that are, or are not, shifted."""
        seeds = self.seeds(model)
        columns = [
            [by[model][seed].score for seed in seeds]
            for (_, split), by in self.scores.items()
            if (split not in SAME) == shifted
        ]
        return np.array(columns).T


def from_runs(study: Study, overrides: Sequence[str] = (), model: str = "", built_in: str = "") -> Results:
    """Return the scores of the finished runs of the benchmark.

    Args:
        overrides: settings of a custom mechanism.
        model: its name; by default that of the runs.
        built_in: what it knows without training.
    """
    scores = []
    for run in study.finished:
        metric = run.config["metric"]
        for split, outputs in run.predictions.items():
            if not split.startswith("test") or not outputs:
                continue
            counts = sentence_counts(metric).count(outputs)
            assert counts.max() < 2**16, f"{run.directory}: a count of {metric} does not fit into 16 bits"
            scores.append(
                Score(
                    task=run.config["task"],
                    model=model or run.config["model"],
                    seed=run.seed,
                    split=split,
                    metric=metric,
                    score=round(_score(metric, counts), 4),
                    inputs=len(outputs),
                    parameters=run.parameters or 0,
                    steps=run.steps or 0,
                    seconds=round(run.seconds or 0, 1),
                    memory=round((run.peak_memory or 0) / 1e6),
                    data=run.data.get(split, "")[:16],
                    train=run.data.get("train", "")[:16],
                    commit=(run.commit or "")[:12],
                    cpu=run.cpu or "",
                    versions=" ".join(f"{name}={run.versions.get(name)}" for name in PACKAGES),
                    overrides=" ".join(overrides),
                    code=" ".join(digest[:16] for _, digest in sorted(run.code.items())),
                    built_in=built_in,
                    outputs=_digest(each.hypothesis for each in outputs),
                    counts=counts.astype(np.uint16),
                )
            )
    return Results(scores)


def download(folder: Path, registry: Path = FILES) -> Iterator[str]:
    """Download the missing files of the tasks into a folder; yield a line for each file.

    An address that ends in #MEMBER is that of a zip archive with the file.
    """
    pooch.get_logger().setLevel("WARNING")
    files = pooch.create(folder, base_url="")
    files.load_registry(registry)
    for name, digest in files.registry.items():
        if (folder / name).exists():
            continue
        address, _, member = files.urls[name].partition("#")
        try:
            if member:
                with tempfile.TemporaryDirectory() as temporary:
                    archive = pooch.retrieve(address, None, path=temporary, progressbar=sys.stderr.isatty())
                    content = zipfile.ZipFile(archive).read(member)
                if hashlib.sha256(content).hexdigest() != digest:
                    raise ValueError(f"{member} of {address} has another SHA-256 hash than {digest}")
                write_atomically(folder / name, content)
            else:
                files.fetch(name, progressbar=sys.stderr.isatty())
            yield f"downloaded {folder / name}"
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:  # network, checksum, archive
            yield f"{name} cannot be downloaded: {' '.join(str(error).split())}"


def write(results: Results, path: Path) -> None:
    """Write FILE.csv and FILE.npz."""
    rows = sorted(results, key=lambda each: (each.cell, each.model, each.seed))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    arrays: dict[str, list[NDArray[np.uint16]]] = {}
    for row in rows:
        arrays.setdefault("/".join(row.cell), []).append(row.counts)
    small = {name: _smallest(np.stack(counts)) for name, counts in arrays.items()}
    with open_atomically(path.with_suffix(".npz")) as file:
        np.savez_compressed(file, **small)  # type: ignore[arg-type]
    write_atomically(path.with_suffix(".csv"), text.getvalue())


def read(path: Path) -> Results:
    """Read FILE.csv and FILE.npz; raise `UserError` for a score that does not follow from its counts."""
    counts = path.with_suffix(".npz")
    if missing := [file for file in (path, counts) if not file.is_file()]:
        raise UserError(f"{missing[0]}: no such file; results of attnlab benchmark are FILE.csv and FILE.npz")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [*csv.DictReader(file)]
        with counts.open("rb") as content, np.load(content, allow_pickle=False) as stored:
            arrays = {name: iter(_checked(stored[name])) for name in stored.files}
        scores = [_parse(row, next(arrays[f"{row['task']}/{row['split']}"])) for row in rows]
        if not rows or any(next(rest, None) is not None for rest in arrays.values()):
            raise ValueError("rows are missing")
    except (*DAMAGES, OSError, EOFError, KeyError, ValueError, TypeError, StopIteration) as error:
        raise UserError(
            f"{path} and its .npz file are not results of attnlab benchmark: {error!r}"
        ) from error
    for each in scores:
        score = _score(each.metric, each.counts)
        if not abs(each.score - score) <= 1e-4 or each.inputs != len(each.counts):
            raise UserError(
                f"{path}: {each.task}, {each.model}, seed {each.seed}, {each.split}: the score is "
                f"{each.score}, its {len(each.counts)} inputs give {score}"
            )
    return Results(scores)


def _checked(counts: NDArray[Any]) -> NDArray[Any]:
    """Return counts [R, N, C] of R rows; raise `ValueError` for another array."""
    if counts.ndim != 3 or counts.dtype.kind != "u":
        raise ValueError(f"counts of type {counts.dtype} with {counts.ndim} axes")
    return counts


def stored_digest() -> str:
    """Return the first 8 digits of the SHA-256 of the stored results."""
    files = (STORED, STORED.with_suffix(".npz"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def _parse(row: Mapping[str, str], counts: NDArray[np.uint16]) -> Score:
    numbers: dict[str, Any] = {name: int(row[name]) for name in INTEGERS}
    numbers |= {name: float(row[name]) for name in ("score", "seconds")}
    return Score(**{**{name: row[name] for name in COLUMNS}, **numbers}, counts=counts)


def join(ours: Results, stored: Results) -> Results:
    """Return the scores on the test sets that both have with the same data."""
    shared = [
        cell
        for cell in ours.scores
        if cell in stored.scores
        and len({each.data for results in (ours, stored) for each in results.only([cell])}) == 1
    ]
    if not shared:
        raise UserError("No test set has the data of the stored results: finish the runs, or check the files")
    return Results([*stored.only(shared), *ours.only(shared)])


def sentence_counts(metric: str) -> SentenceCounts:
    """Return what is counted for each input; raise `UserError` if the metric is no sum over inputs."""
    counts = registry.metric(metric).sentence_counts()
    if counts is None:
        raise UserError(
            f"metric={metric}: the benchmark needs a metric that is a sum over inputs, such as chrf"
        )
    return counts


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _score(metric: str, counts: NDArray[Any]) -> float:
    """Return the score of counts [N, C], on a scale of 0 to 100."""
    value = sentence_counts(metric).value(counts.sum(axis=0, dtype=float))
    return registry.metric(metric).of_100(float(value))


def _smallest(counts: NDArray[np.uint16]) -> NDArray[Any]:
    return counts.astype(np.uint8) if counts.max() < 2**8 else counts
