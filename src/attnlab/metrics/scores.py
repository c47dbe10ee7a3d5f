"""Scores of what a network puts out: of its distribution over tokens, and of the texts it decodes.

Each score is said in one place, with its unit. `TokenScores` and `Samples` gather over batches and over
processes; the scores of texts are plain functions of the samples gathered, by name in `SCORES`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any, NamedTuple

import sacrebleu
import torch
import torch.nn.functional as F
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.text import word_error_rate
from torchmetrics.utilities.data import dim_zero_cat
from torchmetrics.utilities.distributed import gather_all_tensors

from attnlab.errors import UserError
from attnlab.metrics import conala


class Sample(NamedTuple):
    """One sentence pair and what was decoded for it, as texts."""

    index: int  # type: ignore[assignment]  # its place in the split; hides tuple.index, which a record can spare
    source: str
    reference: str
    hypothesis: str
    quoted: tuple[str, ...] = ()  # what the source quotes and the hypothesis may have to repeat


class LengthScores(NamedTuple):
    """The scores of the samples whose lengths are from `shortest` to `longest`, both included."""

    shortest: int
    longest: int
    sentences: int
    scores: dict[str, float]


class Tally(Metric):
    """A metric for which nothing seen yet is a value and no mistake, so torchmetrics need not warn."""

    @property
    def update_called(self) -> bool:
        """Always, as far as torchmetrics need know."""
        return True


class MeanLoss(Metric):
    """Mean of losses over the tokens that each is itself a mean over.

    torchmetrics' `MeanMetric` weighs all alike, unless it may look for NaN, for which a GPU would wait.
    """

    full_state_update = False
    total: Tensor  # [] float64
    tokens: Tensor  # [] float64

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, loss: Tensor, tokens: int) -> None:
        """Add a loss []."""
        self.total += tokens * loss
        self.tokens += tokens

    def compute(self) -> Tensor:
        """The mean []."""
        return self.total / self.tokens


class TokenScores(Tally):
    """Loss, perplexity and accuracy per token, over all batches and processes."""

    full_state_update = False
    loss: Tensor  # [] float64: the sum of negative log-likelihoods, in nats
    correct: Tensor  # [] int64
    count: Tensor  # [] int64

    def __init__(self) -> None:
        super().__init__()
        # A float32 sum over millions of tokens loses the digits in which two models differ
        self.add_state("loss", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("correct", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add N tokens: `logits` [N, V] of any float dtype, `labels` [N]; padding must be left out before."""
        self.loss += F.cross_entropy(logits.float(), labels, reduction="none").double().sum()
        self.correct += (logits.argmax(dim=-1) == labels).sum()
        self.count += labels.numel()

    def compute(self) -> dict[str, Tensor]:
        """`loss` in nats per token without label smoothing, `perplexity`, `token_accuracy` (0 to 1).

        All are NaN where no token was seen.
        """
        loss = self.loss / self.count
        return {"loss": loss, "perplexity": loss.exp(), "token_accuracy": self.correct / self.count}


class Samples(Tally):
    """The samples of all batches and processes, gathered to every process."""

    full_state_update = False
    records: list[Tensor]  # uint8: JSON lines, for only tensors travel between processes

    def __init__(self) -> None:
        super().__init__(dist_sync_fn=_gather_bytes)
        self.add_state("records", [], dist_reduce_fx="cat")

    def update(self, samples: Sequence[Sample]) -> None:
        """Add samples; none is fine."""
        if samples:
            lines = "".join(json.dumps(sample) + "\n" for sample in samples).encode("ascii")
            self.records.append(torch.frombuffer(bytearray(lines), dtype=torch.uint8).to(self.device))

    def compute(self) -> list[Sample]:
        """Every sample once, ordered by index: a sampler may hand a sentence to two processes."""
        if len(self.records) == 0:
            return []
        lines = dim_zero_cat(self.records).cpu().numpy().tobytes().splitlines()
        rows = (Sample(*json.loads(line)) for line in lines)
        samples = {row.index: row._replace(quoted=tuple(row.quoted)) for row in rows}
        return [samples[index] for index in sorted(samples)]


def _gather_bytes(records: Tensor, group: Any = None) -> list[Tensor]:
    """Gather the records of each process; torchmetrics stands in an empty *float* tensor for none."""
    return gather_all_tensors(records.to(torch.uint8), group)


def exact_match(samples: Sequence[Sample]) -> float:
    """Share of hypotheses, 0 to 1, whose tokens (split at white space) are those of the reference."""
    return _mean(hypothesis.split() == reference.split() for hypothesis, reference in _pairs(samples))


def edit_distance(samples: Sequence[Sample]) -> float:
    """Insertions, deletions and substitutions of tokens (split at white space) per reference token."""
    return word_error_rate(*_columns(samples)).item()


def bleu(samples: Sequence[Sample]) -> float:
    """Corpus BLEU of sacreBLEU with its defaults, 0 to 100."""
    return _corpus_score(_bleu_metric(), samples)


def chrf(samples: Sequence[Sample]) -> float:
    """Corpus chrF2 of sacreBLEU, 0 to 100."""
    return _corpus_score(CHRF(), samples)


def conala_bleu(samples: Sequence[Sample]) -> float:
    """BLEU of code by CoNaLa's official script, 0 to 100."""
    return conala.bleu(*_columns(samples))


def parses(samples: Sequence[Sample]) -> float:
    """Share of hypotheses, 0 to 1, that are Python."""
    return _mean(conala.parses(hypothesis) for hypothesis, _ in _pairs(samples))


def conala_exact_match(samples: Sequence[Sample]) -> float:
    """Share of hypotheses, 0 to 1, whose tokens by CoNaLa's official script are those of the reference."""
    return _mean(
        conala.tokenize(hypothesis) == conala.tokenize(reference) for hypothesis, reference in _pairs(samples)
    )


def slot_accuracy(samples: Sequence[Sample]) -> float:
    """Of what the sources quote and the references repeat, the share that the hypotheses repeat, 0 to 1.

    Counted by occurrence, in the tokens of CoNaLa's official script and wherever they stand: a text that
    occurs r times in a reference and h times in its hypothesis is right min(r, h) times. So it can be
    compared between models with and without slots. 1 where no reference repeats anything.
    """
    right = due = 0
    for sample, pair in zip(samples, _pairs(samples), strict=True):
        hypothesis, reference = map(conala.tokenize, pair)
        for text in sample.quoted:
            tokens = conala.tokenize(text)
            wanted = conala.occurrences(tokens, reference)
            due += wanted
            right += min(wanted, conala.occurrences(tokens, hypothesis))
    return right / due if due else 1.0


SCORES: dict[str, Callable[[Sequence[Sample]], float]] = {
    "exact_match": exact_match,
    "edit_distance": edit_distance,
    "bleu": bleu,
    "chrf": chrf,
    "conala_bleu": conala_bleu,
    "conala_exact_match": conala_exact_match,
    "parses": parses,
    "slot_accuracy": slot_accuracy,
}
"""Every score of texts by its name. All raise ValueError where there are no samples."""

OUT_OF_100 = frozenset({"bleu", "chrf", "conala_bleu"})
"""The scores that custom counts from 0 to 100. The others are shares, from 0 to 1."""

EVERY = ("exact_match", "edit_distance", "bleu", "chrf")
"""The scores computed for every corpus."""


def score(samples: Sequence[Sample], names: Iterable[str] = EVERY) -> dict[str, float]:
    """Compute the named scores of the samples; UserError for a name that is not in `SCORES`."""
    return {name: _known(name)(samples) for name in names}


def by_length(
    samples: Sequence[Sample], lengths: Sequence[int], names: Iterable[str] = EVERY, *, bins: int = 10
) -> list[LengthScores]:
    """The scores of short and of long samples: `lengths[i]` is the length of `samples[i]`.

    In at most `bins` ranges of equal width, from the shortest length on; where there are few lengths, each is
    a range of its own. Ranges without samples are left out.
    """
    names = list(names)
    first, last = min(lengths), max(lengths)
    width = ceil((last - first + 1) / bins)
    found = []
    for shortest in range(first, last + 1, width):
        longest = min(shortest + width - 1, last)
        chosen = [s for s, length in zip(samples, lengths, strict=True) if shortest <= length <= longest]
        if chosen:
            found.append(LengthScores(shortest, longest, len(chosen), score(chosen, names)))
    return found


def signatures(names: Iterable[str] = EVERY) -> dict[str, str]:
    """How the named scores were computed, for those that can be computed in more than one way."""
    versions = {
        "bleu": _signature(_bleu_metric()),
        "chrf": _signature(CHRF()),
        "conala_bleu": f"{conala.SIGNATURE}|version:{sacrebleu.__version__}",
    }
    return {name: versions[name] for name in names if name in versions}


def _bleu_metric() -> BLEU:
    return BLEU(force=True)  # no warning about tokenised texts: ours often are, and know it


def _corpus_score(metric: SacreMetric, samples: Sequence[Sample]) -> float:
    hypotheses, references = _columns(samples)
    return float(metric.corpus_score(hypotheses, [references]).score)


def _signature(metric: SacreMetric) -> str:
    metric.corpus_score([""], [[""]])  # sacreBLEU learns the number of references by scoring
    return str(metric.get_signature())


def _known(name: str) -> Callable[[Sequence[Sample]], float]:
    if name not in SCORES:
        raise UserError(f"unknown score {name!r}: choose from {', '.join(SCORES)}")
    return SCORES[name]


def _pairs(samples: Sequence[Sample]) -> list[tuple[str, str]]:
    """(hypothesis, reference) of each sample."""
    if not samples:
        raise ValueError("no samples to score: the corpus or the decoded part of it is empty")
    return [(sample.hypothesis, sample.reference) for sample in samples]


def _columns(samples: Sequence[Sample]) -> tuple[list[str], list[str]]:
    hypotheses, references = zip(*_pairs(samples), strict=True)
    return list(hypotheses), list(references)


def _mean(values: Iterable[bool]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
