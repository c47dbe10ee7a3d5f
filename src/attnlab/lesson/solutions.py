"""Solutions of the exercises of the lesson."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.types import EOS, SOS


def final_state(states: Tensor, lengths: Tensor) -> Tensor:
    """Chapter 1: return the state of the last real token, [B, D], of states [B, S, D] and lengths [B]."""
    return states[torch.arange(len(lengths)), lengths - 1]


def score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Chapter 2: return vᵀ tanh(q + k_j), [B, S], of queries [B, A], keys [B, S, A] and v [A]."""
    return torch.tanh(query[:, None] + keys) @ v


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Chapter 3: return the softmax of scores [B, S] over the tokens where the mask [B, S] is True."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=1)


def context(weights: Tensor, states: Tensor) -> Tensor:
    """Chapter 4: return Σ_j α_j h_j, [B, D], of weights [B, S] and states [B, S, D]."""
    return (weights[:, :, None] * states).sum(dim=1)


def decoder_step(
    embedded: Tensor, state: Tensor, attend: Callable[[Tensor], tuple[Tensor, Tensor]], cell: nn.GRUCell
) -> tuple[Tensor, Tensor, Tensor]:
    """Chapter 5: return the new state [B, H], the context [B, D] and the weights [B, S] of one step."""
    context, weights = attend(state)
    return cell(torch.cat([embedded, context], dim=1), state), context, weights


def greedy(step: Callable[[int, Any], tuple[Tensor, Any]], state: Any, max_length: int) -> list[int]:
    """Chapter 6: return the most probable tokens, without EOS, at most `max_length`.

    `step(token, state)` returns the probabilities [V] of the next token, and the next state.
    """
    tokens: list[int] = []
    token = SOS
    while len(tokens) < max_length:
        probabilities, state = step(token, state)  # [V]
        token = int(probabilities.argmax())
        if token == EOS:
            break
        tokens.append(token)
    return tokens


def hard_weights(scores: Tensor, mask: Tensor) -> Tensor:
    """Chapter 7: return 1 at the largest score [B, S] of a real token and 0 elsewhere, [B, S]."""
    best = scores.masked_fill(~mask, -torch.inf).argmax(dim=1)  # [B]
    return F.one_hot(best, scores.size(1)).to(scores.dtype)


def copy_probabilities(generated: Tensor, gate: Tensor, weights: Tensor, source: Tensor) -> Tensor:
    """Chapter 7: return g p(v) + (1 - g) Σ_{j: x_j = v} α_j, [B, V].

    The arguments are p [B, V], g [B, 1], α [B, S] and the ids x of the source tokens, [B, S].
    """
    return (gate * generated).scatter_add(1, source, (1 - gate) * weights)
