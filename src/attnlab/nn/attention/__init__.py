"""Attention mechanisms, one file a family. `base.Attention` says what all of them share."""

from attnlab.nn.attention.additive import Additive
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.baselines import Final, Mean, NoAttention
from attnlab.nn.attention.multiplicative import Dot, General, ScaledDot

__all__ = ["Additive", "Attention", "Dot", "Final", "General", "Mean", "NoAttention", "ScaledDot"]
