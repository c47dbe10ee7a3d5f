"""Which decoders and attention mechanisms the fused loop supports.

A subclass is supported if it inherits every method that the loop replaces.
"""

from typing import Any

from torch import nn

from attnlab.fast.attend import Concat, Energy, Scores
from attnlab.fast.layer import Cells, CellStack
from attnlab.fast.linear import Linear
from attnlab.nn.attention import additive
from attnlab.nn.attention.additive import Additive
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.baselines import Final, Mean, NoAttention
from attnlab.nn.attention.location import LocationSensitive
from attnlab.nn.attention.multiplicative import Dot, General
from attnlab.nn.attention.normalisers import Entmax
from attnlab.nn.decoders import BahdanauDecoder, Decoder, LuongDecoder

STEP = ("project", "step", "forward")
SCORE = ("score", "weigh", "begin", "advance", "context", "forward")


def unsupported(decoder: Decoder) -> str | None:
    """Return why the fused loop does not support a decoder, or None if it does."""
    name = type(decoder).__name__
    order = next((base for base in (BahdanauDecoder, LuongDecoder) if isinstance(decoder, base)), None)
    if order is None:
        return f"{name} has no loop that depends on the attention of the step before"
    if changed := _overridden(decoder, order, STEP):
        return f"{name} overrides {order.__name__}.{changed}"
    assert isinstance(decoder, BahdanauDecoder | LuongDecoder)
    if isinstance(decoder, LuongDecoder) and not decoder.input_feeding:
        return f"{name} without input feeding has no loop that depends on the attention of the step before"
    if not (type(decoder.cells) is CellStack and type(decoder.cells.cells) is Cells):
        return f"{name} has other cells"
    return _unsupported_attention(decoder.attention)


def is_constant(decoder: Decoder) -> bool:
    """Return whether a decoder in Bahdanau's order has the same context and weights at all positions.

    Its layers can then be computed one after the other. Types of mechanisms are compared exactly: a subclass
    may have a score that depends on the query.
    """
    in_order = isinstance(decoder, BahdanauDecoder) and _overridden(decoder, BahdanauDecoder, STEP) is None
    return in_order and type(decoder.attention) in (NoAttention, Mean, Final)


def fused_scores(attention: Attention) -> Scores:
    """Return the parameters of the scores of a supported mechanism."""
    softmax: Any = attention.normaliser
    if isinstance(attention, LocationSensitive):
        past = attention.past
        location = past.weight @ attention.convolution.weight[:, 0]  # [A, C] by [C, K]
        energy = attention.energy.weight[0]
        return Scores(softmax.temperature, energy, attention.query.weight, past.bias, location)
    if isinstance(attention, Additive):
        query = attention.query
        return Scores(softmax.temperature, attention.energy.weight[0], query.weight, query.bias)
    if isinstance(attention, Concat):
        query_weight = attention.pair.weight[:, : attention.query_size]  # the bias is part of the keys
        return Scores(softmax.temperature, attention.energy.weight[0], query_weight)
    return Scores(softmax.temperature)  # ScaledDot scales its keys


def _unsupported_attention(attention: Attention) -> str | None:
    name = type(attention).__name__
    kinds = (LocationSensitive, Additive, Concat, Dot, General)
    kind: Any = next((base for base in kinds if isinstance(attention, base)), None)
    if kind is None:
        return f"{name} has no fused scores"
    replaced = (*SCORE, "features") if kind is LocationSensitive else SCORE
    if changed := _overridden(attention, kind, replaced):
        return f"{name} overrides {kind.__name__}.{changed}"
    if isinstance(attention, Additive | Concat):
        query = attention.query if isinstance(attention, Additive) else attention.pair
        layers = [query, attention.past] if isinstance(attention, LocationSensitive) else [query]
        linear = all(type(layer) in (nn.Linear, Linear) for layer in layers)
        if not linear or type(attention.energy) not in (additive.Energy, Energy):
            return f"{name} has other layers than {kind.__name__}"
    normaliser = attention.normaliser
    if type(normaliser) is not Entmax or normaliser.alpha != 1:
        return f"{name} has another normaliser than softmax"
    return None


def _overridden(part: object, base: type, methods: tuple[str, ...]) -> str | None:
    """Return the first method that a class or an object does not inherit from `base`, or None."""
    changed = (m for m in methods if getattr(getattr(part, m), "__func__", None) is not getattr(base, m))
    return next(changed, None)
