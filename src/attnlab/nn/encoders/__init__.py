"""Encoders: map embedded source sentences to a memory."""

from attnlab.nn.encoders.base import Encoder
from attnlab.nn.encoders.recurrent import RecurrentEncoder

__all__ = ["Encoder", "RecurrentEncoder"]
