"""Encoders: map embedded source sentences to a memory."""

from attnlab.nn.encoders.base import Encoder
from attnlab.nn.encoders.recurrent import RecurrentEncoder
from attnlab.nn.encoders.transformer import TransformerEncoder

__all__ = ["Encoder", "RecurrentEncoder", "TransformerEncoder"]
