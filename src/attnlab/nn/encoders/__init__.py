"""Encoders: map embedded source sentences to a memory."""

from attnlab.nn.encoders.bag import BagEncoder as BagEncoder
from attnlab.nn.encoders.base import Encoder as Encoder
from attnlab.nn.encoders.convolutional import ConvolutionalEncoder as ConvolutionalEncoder
from attnlab.nn.encoders.delta import DeltaNetEncoder as DeltaNetEncoder
from attnlab.nn.encoders.linear_recurrent import MinGRUEncoder as MinGRUEncoder
from attnlab.nn.encoders.recurrent import RecurrentEncoder as RecurrentEncoder
from attnlab.nn.encoders.transformer import TransformerEncoder as TransformerEncoder
