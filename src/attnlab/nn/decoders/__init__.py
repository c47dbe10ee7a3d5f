"""Decoders, one module for each order of attending and updating the state."""

from attnlab.nn.cells import StateShape
from attnlab.nn.decoders.bahdanau import BahdanauDecoder
from attnlab.nn.decoders.base import Decoder, DecoderOutput, DecoderState, Unroll
from attnlab.nn.decoders.exact_hard import ExactHardDecoder
from attnlab.nn.decoders.finite_state import FiniteStateDecoder
from attnlab.nn.decoders.gnmt import GNMTDecoder
from attnlab.nn.decoders.luong import LuongDecoder
from attnlab.nn.decoders.transformer import TransformerDecoder

__all__ = [
    "BahdanauDecoder",
    "Decoder",
    "DecoderOutput",
    "DecoderState",
    "ExactHardDecoder",
    "FiniteStateDecoder",
    "GNMTDecoder",
    "LuongDecoder",
    "StateShape",
    "TransformerDecoder",
    "Unroll",
]
