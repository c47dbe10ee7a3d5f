"""Decoders, one module for each order of attending and updating the state."""

from attnlab.nn.cells import StateShape as StateShape
from attnlab.nn.decoders.bahdanau import BahdanauDecoder as BahdanauDecoder
from attnlab.nn.decoders.base import Decoder as Decoder
from attnlab.nn.decoders.base import DecoderOutput as DecoderOutput
from attnlab.nn.decoders.base import DecoderState as DecoderState
from attnlab.nn.decoders.base import Unroll as Unroll
from attnlab.nn.decoders.exact_hard import ExactHardDecoder as ExactHardDecoder
from attnlab.nn.decoders.luong import LuongDecoder as LuongDecoder
from attnlab.nn.decoders.transformer import TransformerDecoder as TransformerDecoder
