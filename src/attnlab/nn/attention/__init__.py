"""Attention mechanisms, one module per family. `base.Attention` defines the interface."""

from attnlab.nn.attention.additive import Additive, Concat
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.baselines import Final, Mean, NoAttention
from attnlab.nn.attention.coverage import CoverageSee, CoverageTu
from attnlab.nn.attention.differential import Differential
from attnlab.nn.attention.forgetting import Forgetting
from attnlab.nn.attention.forward import Forward
from attnlab.nn.attention.hard import Hard
from attnlab.nn.attention.local import LocalM, LocalP
from attnlab.nn.attention.location import Location, LocationSensitive
from attnlab.nn.attention.markov import Markov
from attnlab.nn.attention.mixture import Mixture
from attnlab.nn.attention.monotonic import MILk, MoChA, Monotonic
from attnlab.nn.attention.multihead import MultiHead
from attnlab.nn.attention.multiplicative import Cosine, Dot, General, ScaledDot
from attnlab.nn.attention.shift import Shift
from attnlab.nn.attention.sigmoid import Sigmoid
from attnlab.nn.attention.sink import Sink
from attnlab.nn.attention.stick_breaking import StickBreaking

__all__ = [
    "Additive",
    "Attention",
    "Concat",
    "Cosine",
    "CoverageSee",
    "CoverageTu",
    "Differential",
    "Dot",
    "Final",
    "Forgetting",
    "Forward",
    "General",
    "Hard",
    "LocalM",
    "LocalP",
    "Location",
    "LocationSensitive",
    "MILk",
    "Markov",
    "Mean",
    "Mixture",
    "MoChA",
    "Monotonic",
    "MultiHead",
    "NoAttention",
    "ScaledDot",
    "Shift",
    "Sigmoid",
    "Sink",
    "StickBreaking",
]
