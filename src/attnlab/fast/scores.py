"""Attention mechanisms whose scores the fused loops compute."""

from __future__ import annotations

from attnlab.fast.attend import Scores
from attnlab.nn.attention.additive import Additive, Concat
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.multiplicative import Dot, General, ScaledDot
from attnlab.nn.attention.normalisers import Entmax


def fused_scores(attention: Attention) -> Scores | None:
    """Return the parameters of a mechanism's scores, or None if the fused loops do not support it.

    Mechanism and normaliser are compared by their exact types: a subclass may compute something else.
    """
    softmax = attention.normaliser
    if type(softmax) is not Entmax or softmax.alpha != 1:
        return None
    if type(attention) is Additive:
        query = attention.query
        return Scores(softmax.temperature, attention.energy.weight[0], query.weight, query.bias)
    if type(attention) is Concat:
        query_weight = attention.pair.weight[:, : attention.query_size]  # the bias is part of the keys
        return Scores(softmax.temperature, attention.energy.weight[0], query_weight)
    if type(attention) in (Dot, ScaledDot, General):  # ScaledDot scales its keys
        return Scores(softmax.temperature)
    return None
