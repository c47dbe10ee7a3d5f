"""Searches as plain loops over teacher-forced passes, one sentence at a time."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import EOS, PAD, SOS, Batch
from networks import forced_logits, make_batch, make_network


def make(seed: int, *, ends: float = 0.0, **options: Any) -> Seq2Seq:
    """Return a network whose EOS logit is raised by `ends` at every step."""
    network = make_network(seed=seed, **options)
    with torch.no_grad():
        network.readout.output.bias[EOS] += ends
    return network


def single(batch: Batch, row: int, padding: int = 0) -> Batch:
    """Return one sentence of the batch as a batch of its own."""
    return make_batch([batch.source[row, : batch.source_lengths[row]].tolist()], padding=padding)


FORBIDDEN = float("-inf")


@torch.no_grad()
def next_log_probabilities(network: Seq2Seq, sentence: Batch, tokens: list[int]) -> list[float]:
    """Return log p(y | tokens) from a teacher-forced pass over the tokens so far; -inf for PAD and SOS."""
    inputs = torch.tensor([[SOS, *tokens, EOS]])
    logits = forced_logits(network, sentence._replace(target=inputs))
    return [FORBIDDEN, FORBIDDEN, *logits[0, -1].log_softmax(dim=-1)[EOS:].tolist()]


Restriction = Callable[[list[float], list[int]], list[float]]
"""Maps the scores of all tokens and the tokens so far to the scores, -inf where a token is not allowed."""


def unrestricted(scores: list[float], tokens: list[int]) -> list[float]:
    return scores


def restriction(min_length: int = 0, n: int = 0, forced: Sequence[int] = ()) -> Restriction:
    """Return the restriction to a minimum length, distinct n-grams and forced tokens (PAD where free)."""

    def restrict(scores: list[float], tokens: list[int]) -> list[float]:
        step = len(tokens)
        if step < len(forced) and forced[step] != PAD:
            return [score if token == forced[step] else FORBIDDEN for token, score in enumerate(scores)]
        allowed = [
            FORBIDDEN
            if (token == EOS and step < min_length) or (token != EOS and repeats_ngram([*tokens, token], n))
            else score
            for token, score in enumerate(scores)
        ]
        if max(allowed) == FORBIDDEN:
            allowed[EOS] = scores[EOS]
        return allowed

    return restrict


def repeats_ngram(tokens: list[int], n: int) -> bool:
    """Return whether the last n tokens occur earlier in the sequence."""
    ngrams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return n > 0 and ngrams[:-1].count(ngrams[-1]) > 0 if ngrams else False


def plain_greedy(
    network: Seq2Seq, sentence: Batch, max_length: int, restrict: Restriction = unrestricted
) -> tuple[list[int], float]:
    tokens: list[int] = []
    total = 0.0
    while True:
        scores = next_log_probabilities(network, sentence, tokens)
        scores = restrict(scores, tokens) if len(tokens) < max_length else scores
        best = max(range(len(scores)), key=scores.__getitem__) if len(tokens) < max_length else EOS
        total += scores[best]
        if best == EOS:
            return tokens, total / (len(tokens) + 1)
        tokens = [*tokens, best]


def plain_beam(
    network: Seq2Seq,
    sentence: Batch,
    size: int,
    max_length: int,
    length_penalty: float,
    restrict: Restriction = unrestricted,
    *,
    ends_early: bool = True,
) -> list[tuple[float, list[int]]]:
    """Search with a beam. With `ends_early`, it ends when it is full and no live hypothesis can win."""

    def continuations(tokens: list[int]) -> list[float]:
        scores = next_log_probabilities(network, sentence, tokens)
        return restrict(scores, tokens) if len(tokens) < max_length else scores

    active: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    greedy: list[int] | None = []  # None: it has ended
    for n in range(1, max_length + 2):
        candidates = [
            (total + score, tokens, token)
            for total, tokens in active
            for token, score in enumerate(continuations(tokens))
            if (token == EOS or n <= max_length) and score > FORBIDDEN
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        if greedy is not None:  # its best continuation is kept, whatever its rank
            best = next(candidate for candidate in candidates if candidate[1] == greedy)
            candidates.remove(best)
            candidates.insert(0, best)
            _, tokens, token = best
            greedy = None if token == EOS else [*tokens, token]
        ending = [
            (total / n**length_penalty, tokens) for total, tokens, token in candidates[:size] if token == EOS
        ]
        finished = sorted(finished + ending, key=lambda one: -one[0])[:size]
        active = [(total, [*tokens, token]) for total, tokens, token in candidates if token != EOS][:size]
        limits = [total / (max_length + 1) ** length_penalty for total, _ in active]
        top = max((score for score, _ in finished), default=FORBIDDEN)
        if not limits or (ends_early and len(finished) == size and max(limits) <= top):
            break
    return finished


def plain_search(
    network: Seq2Seq, sentence: Batch, size: int, max_length: int, restrict: Restriction = unrestricted
) -> list[tuple[float, list[int]]]:
    """Search greedily if the size is 1, otherwise with a beam."""
    if size > 1:
        return plain_beam(network, sentence, size, max_length, 1.0, restrict)
    tokens, score = plain_greedy(network, sentence, max_length, restrict)
    return [(score, tokens)]


def plain_sample(
    network: Seq2Seq,
    sentence: Batch,
    random: list[float],
    max_length: int,
    *,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
) -> tuple[list[int], float]:
    """Sample by inverting the cumulative distribution at the given random numbers."""
    tokens: list[int] = []
    total = 0.0
    for step in range(max_length + 1):
        scores = next_log_probabilities(network, sentence, tokens)
        powers = {
            token: math.exp(score / temperature)
            for token, score in enumerate(scores)
            if step < max_length or token == EOS
        }
        best = sorted(powers, key=lambda token: -powers[token])[:top_k]
        if top_p is not None:
            mass = sum(powers[token] for token in best)
            sizes = (i for i in range(1, len(best) + 1) if sum(powers[t] for t in best[:i]) >= top_p * mass)
            best = best[: next(sizes, len(best))]
        threshold = random[step] * sum(powers[token] for token in best)
        cumulative = 0.0
        for token in sorted(best):
            cumulative += powers[token]
            if cumulative > threshold:
                break
        total += scores[token]
        if token == EOS:
            break
        tokens.append(token)
    return tokens, total / (len(tokens) + 1)
