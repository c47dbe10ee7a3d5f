"""Replacement of the parts of a network by fast ones, and back."""

from collections import Counter

from torch import nn

from attnlab.fast.attend import Concat, Energy
from attnlab.fast.layer import Cells, CellStack
from attnlab.fast.linear import Linear, Products, has_large_weights
from attnlab.fast.machine import trains_by_onednn
from attnlab.fast.parts import Marginal, MarginalSeq2Seq, RecurrentEncoder, Seq2Seq
from attnlab.fast.support import is_constant, unsupported
from attnlab.nn import cells, encoders, marginal, seq2seq
from attnlab.nn.attention import additive

FAST: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: Linear,
    additive.Concat: Concat,
    additive.Energy: Energy,
    cells.Cells: Cells,
    cells.CellStack: CellStack,
    encoders.RecurrentEncoder: RecurrentEncoder,
    seq2seq.Seq2Seq: Seq2Seq,
    marginal.Marginal: Marginal,
    marginal.MarginalSeq2Seq: MarginalSeq2Seq,
}
"""Fast class of each plain class. Subclasses of plain classes are not replaced."""

PLAIN = {fast: plain for plain, fast in FAST.items()}


def accelerate(network: nn.Module) -> None:
    """Make a network fast, in place: its parts get the fast subclasses of their classes.

    Parameters, their names and results, to 1e-5, stay the same.
    """
    earlier = (part.products for part in network.modules() if type(part) in PLAIN)
    products = next(earlier, Products())
    for part in network.modules():
        if type(part) in FAST:
            part.__class__ = FAST[type(part)]
            part.products = products  # type: ignore[assignment]


def make_plain(network: nn.Module) -> None:
    """Undo `accelerate`, in place."""
    for part in network.modules():
        if type(part) in PLAIN:
            part.__class__ = PLAIN[type(part)]
            del part.products


def describe_speed(network: seq2seq.Seq2Seq) -> str:
    """Return which parts of a network run fast, which ones run plain, and why."""
    fast: list[str] = []
    plain: list[str] = []
    if isinstance(network.encoder, RecurrentEncoder):
        on_gpu = next(network.parameters()).device.type != "cpu"
        (plain if on_gpu else fast).append("encoder (torch's is faster on a GPU)" if on_gpu else "encoder")
    if isinstance(network, Seq2Seq):
        reason = None if is_constant(network.decoder) else unsupported(network.decoder)
        fast.append("decoder loop") if reason is None else plain.append(f"decoder loop ({reason})")
    counts = Counter(type(part) for part in network.modules())
    if counts[Linear]:
        fast.append(f"{counts[Linear]} linear layers")
    if fast and has_large_weights(network):
        fast.append(f"large products by {'oneDNN' if trains_by_onednn() else 'MKL'}")
    for kind in counts:
        base = next((base for base in kind.__mro__[1:] if base in FAST), None)
        if base is not None and kind not in PLAIN:
            plain.append(f"{kind.__name__} (a subclass of {base.__name__})")
    if not fast:
        return "plain: everything"
    return f"fast: {', '.join(fast)}; plain: {', '.join(plain) or 'nothing else'}"
