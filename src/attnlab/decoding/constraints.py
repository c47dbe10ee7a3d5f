"""Restrictions on the outputs of a search, as masks of its log-probabilities.

B, V, Q as in `attnlab.types` · live: sentences still in the batch · P: positions with a forced token
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.types import EOS, PAD

FORBIDDEN = float("-inf")


def log_probabilities(logits: Tensor, copy_ids: Tensor | None, *, must_end: bool) -> Tensor:
    """Return log-probabilities in fp32, -inf at tokens that no output may contain.

    These are PAD, SOS, ids of copied words that a sentence does not have, and with `must_end`, at the last
    step, all tokens except EOS. The others keep the probabilities of the model.

    Args:
        logits: [live, Q, V], or [live, Q, V + S] of a readout that copies.
        copy_ids: `Batch.copy_ids` of the sentences, [live, S]; None if the readout does not copy.
    """
    log_p = logits.float().log_softmax(dim=-1)
    log_p[..., :EOS].fill_(FORBIDDEN)  # PAD and SOS
    if must_end:
        log_p[..., EOS + 1 :].fill_(FORBIDDEN)
    elif copy_ids is not None:
        ids = torch.arange(log_p.size(-1), device=log_p.device)  # [V + S]
        words = log_p.size(-1) - copy_ids.size(1)  # of the vocabulary
        last = copy_ids.amax(dim=1, keepdim=True).clamp(min=words - 1)  # [live, 1]
        log_p.masked_fill_((ids > last)[:, None], FORBIDDEN)
    return log_p


TESTED = 8  # Continuations that are tested at most for each one that is kept

Accepts = Callable[[str, bool], bool]
"""A grammar: for a text and True, whether the text is valid; for a text and False, whether it is valid or can
become valid by more text at its end. The option group `grammar` chooses one."""


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """Restriction of outputs to the texts of a grammar.

    Of the continuations of all hypotheses of a sentence, the most probable ones are kept whose text the
    grammar accepts; and so is the best one of the first hypothesis.

    Args:
        decode: maps the row of a sentence in the batch and token ids to text.
        count: number of continuations to keep for a sentence; a beam of K hypotheses reads 2K.
    """

    accepts: Accepts
    decode: Callable[[int, Sequence[int]], str]
    count: int

    def __call__(self, log_p: Tensor, sums: Tensor, sentences: Tensor, history: Tensor) -> Tensor:
        """Return the log-probabilities with -inf for the continuations that are not kept."""
        totals = (log_p + sums[..., None]).flatten(1)  # [live, Q * V]
        size = log_p.size(-1)
        best = totals.topk(min(TESTED * self.count, totals.size(1)), dim=-1)  # [live, tested]
        greedy = log_p[:, 0].topk(min(2 * TESTED, size), dim=-1).indices.tolist()  # beam 0, see `beam`
        counts = best.values.isfinite().sum(dim=-1).tolist()  # 0 for finished sentences
        kept = torch.zeros_like(totals, dtype=torch.bool)
        for number, (row, hypotheses, count) in enumerate(
            zip(sentences.tolist(), history.tolist(), counts, strict=True)
        ):
            is_valid = partial(self._is_valid, row, hypotheses, size)
            tested = best.indices[number, :count].tolist()
            kept[number, [*islice(filter(is_valid, tested), self.count)]] = True
            kept[number, [*islice(filter(is_valid, greedy[number][:count]), 1)]] = True
        return log_p.masked_fill(~kept.view_as(log_p), float("-inf"))

    def _is_valid(self, row: int, hypotheses: list[list[int]], size: int, place: int) -> bool:
        history, token = hypotheses[place // size], place % size
        ids = history if token == EOS else [*history, token]
        return self.accepts(self.decode(row, ids), token == EOS)


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Minimum length, excluded tokens, forced tokens and a grammar; the defaults restrict nothing.

    A forced token is allowed whatever the other restrictions are. Where they allow no token at all, EOS is
    allowed.

    Args:
        no_repeat_ngram_size: n; no n tokens in sequence occur twice in an output. 0 for no restriction.
        excluded: [B, V] bool, True at the tokens that no output of a sentence contains.
        forced: [B, P] int64, the token of each of the first P positions; PAD where any token is allowed.
        grammar: applied to the tokens that the other restrictions allow, if no token is forced.
    """

    min_length: int = 0
    no_repeat_ngram_size: int = 0
    excluded: Tensor | None = None
    forced: Tensor | None = None
    grammar: Grammar | None = None

    def __call__(
        self, log_p: Tensor, sums: Tensor, sentences: Tensor, step: int, history: Callable[[], Tensor]
    ) -> Tensor:
        """Return the log-probabilities with -inf at the tokens that are not allowed.

        Args:
            log_p: [live, Q, V].
            sums: log-probabilities of the hypotheses so far, [live, Q].
            sentences: row of each sentence in the batch, [live].
            step: number of tokens so far.
            history: returns the tokens so far, [live, Q, step].
        """
        allowed = log_p
        if 0 < self.no_repeat_ngram_size <= step:
            repeats = _repeats(history(), self.no_repeat_ngram_size, log_p.size(-1))
            allowed = allowed.masked_fill(repeats, FORBIDDEN)
        if self.excluded is not None:
            excluded = self.excluded[sentences]  # [live, V]
            # copied words, with ids from V on, are allowed
            excluded = F.pad(excluded, (0, log_p.size(-1) - excluded.size(-1)))
            allowed = allowed.masked_fill(excluded[:, None], FORBIDDEN)
        if step < self.min_length:
            allowed = allowed.index_fill(-1, torch.tensor(EOS, device=log_p.device), FORBIDDEN)
        if self.grammar is not None:
            allowed = self.grammar(allowed, sums, sentences, history())
        if allowed is not log_p:
            # the grammar may keep nothing of a hypothesis whose continuations are worse than all others
            of = -1 if self.grammar is None else (1, 2)
            nothing = allowed.isneginf().all(dim=of, keepdim=True)  # [live, Q or 1, 1]
            allowed = allowed.where(~(nothing & _is_token(EOS, log_p)), log_p)
        if self.forced is not None and step < self.forced.size(1):
            token = self.forced[sentences, step][:, None, None]  # [live, 1, 1]
            only = log_p.masked_fill(~_is_token(token, log_p), FORBIDDEN)
            allowed = torch.where(token == PAD, allowed, only)
        return allowed


UNRESTRICTED = Constraints()


def _is_token(token: Tensor | int, log_p: Tensor) -> Tensor:
    """Return a mask [..., V], True at a token."""
    return torch.arange(log_p.size(-1), device=log_p.device) == token


def _repeats(history: Tensor, n: int, vocabulary_size: int) -> Tensor:
    """Return a mask [live, Q, V] of the tokens that would repeat an n-gram of the history [live, Q, step]."""
    ngrams = history.unfold(-1, n, 1)  # [live, Q, step - n + 1, n]
    latest = history[..., None, history.size(-1) - n + 1 :]  # [live, Q, 1, n - 1]
    equal = (ngrams[..., :-1] == latest).all(dim=-1)  # [live, Q, step - n + 1]
    last = ngrams[..., -1].where(equal, vocabulary_size)  # an id outside the vocabulary where they differ
    mask = torch.zeros(*history.shape[:2], vocabulary_size + 1, dtype=torch.bool, device=history.device)
    return mask.scatter(-1, last, True)[..., :-1]
