"""Choice of random tokens: temperature, top-k and nucleus sampling.

N hypotheses of a step · K samples per sentence · B, T, V as in `attnlab.types`
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Draws tokens from softmax(log p / temperature), restricted to probable tokens.

    The random numbers of a sample depend on the seed, the index of the sentence and the number of the sample
    only, not on the other sentences of the batch.
    """

    temperature: float = 1.0  # below 1 prefers probable tokens, above 1 flattens the distribution
    top_k: int | None = None  # draw from the k most probable tokens
    # then from the smallest set of most probable tokens with at least this total probability (Holtzman et al.
    # 2020, arXiv 1904.09751)
    top_p: float | None = None
    seed: int = 0

    def random_numbers(self, indices: Tensor, samples: int, steps: int) -> Tensor:
        """Return random numbers in [0, 1) for K samples of the sentences with these indices [B].

        Returns:
            [B * K, steps] float64, on the CPU; the K samples of a sentence are neighbours.
        """
        rows = [
            np.random.default_rng((self.seed, index, sample)).random(steps)
            for index in indices.tolist()
            for sample in range(samples)
        ]
        return torch.from_numpy(np.stack(rows))

    def choose(self, log_p: Tensor, random: Tensor) -> Tensor:
        """Return a token for each of N hypotheses.

        Args:
            log_p: log-probabilities [N, V], -inf at tokens that are not allowed.
            random: random number in [0, 1) of each hypothesis, [N] float64.

        Returns:
            [N] int64: the first token, in the order of the ids, at which the cumulative probability exceeds
            the random number.
        """
        scores = self._restrict(log_p.double() / self.temperature)
        cumulative = scores.softmax(dim=-1).cumsum(dim=-1)  # [N, V]
        total = cumulative[:, -1:]  # [N, 1]: 1 up to rounding
        chosen = torch.searchsorted(cumulative, random[:, None].to(total.device) * total, right=True)
        return chosen[:, 0]  # below V: a float64 total times a number below 1 is below the total

    def _restrict(self, scores: Tensor) -> Tensor:
        """Return the scores [N, V] with -inf at the tokens that are not drawn."""
        if self.top_k is not None:
            largest, ids = scores.topk(min(self.top_k, scores.size(-1)), dim=-1)  # each [N, k]
            scores = torch.full_like(scores, float("-inf")).scatter(-1, ids, largest)
        if self.top_p is not None:
            ordered, order = scores.sort(dim=-1, descending=True, stable=True)  # [N, V]
            p = ordered.softmax(dim=-1)
            outside = p.cumsum(dim=-1) - p >= self.top_p  # [N, V]: the tokens before suffice
            scores = scores.masked_fill(outside.scatter(-1, order, outside), float("-inf"))
        return scores
