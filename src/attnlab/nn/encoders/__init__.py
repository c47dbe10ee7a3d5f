"""Encoders: map embedded source sentences to a memory."""

from attnlab.nn.encoders.bag import BagEncoder
from attnlab.nn.encoders.base import Encoder
from attnlab.nn.encoders.convolutional import ConvolutionalEncoder
from attnlab.nn.encoders.delta import DeltaNetEncoder
from attnlab.nn.encoders.linear_recurrent import FlipFlopEncoder, MinGRUEncoder, RGLRUEncoder
from attnlab.nn.encoders.nested import NestedEncoder
from attnlab.nn.encoders.recurrent import RecurrentEncoder
from attnlab.nn.encoders.stack import StackEncoder
from attnlab.nn.encoders.transformer import TransformerEncoder

__all__ = [
    "BagEncoder",
    "ConvolutionalEncoder",
    "DeltaNetEncoder",
    "Encoder",
    "FlipFlopEncoder",
    "MinGRUEncoder",
    "NestedEncoder",
    "RGLRUEncoder",
    "RecurrentEncoder",
    "StackEncoder",
    "TransformerEncoder",
]
