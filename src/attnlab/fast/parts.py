"""Fast subclasses of the parts of a network, and the replacement of plain parts by them and back."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attnlab.errors import UsageError
from attnlab.fast.attend import Concat, Energy
from attnlab.fast.layer import Cells, CellStack, FusedRecurrence, fuse
from attnlab.fast.linear import Linear, Products, has_large_weights, narrow_precision
from attnlab.fast.machine import trains_by_onednn
from attnlab.fast.unroll import ConstantUnroll, FusedUnroll, is_constant, unsupported
from attnlab.nn import cells, encoders, marginal, seq2seq
from attnlab.nn.attention import additive
from attnlab.nn.decoders import Unroll
from attnlab.nn.embedding import TokenEmbedding
from attnlab.types import Batch, Memory

MIN_SENTENCES = 32  # Fewer sentences are encoded without gradients by torch's network, which is faster then

MAX_TABLE = 4
"""A search computes a table of the inputs of all tokens if these are at most so many times the hypotheses."""


class RecurrentEncoder(encoders.RecurrentEncoder):
    """Recurrent encoder with fused layers, on a CPU. On a GPU torch's kernels are faster."""

    products: Products

    def recurrence(self, part: int) -> FusedRecurrence:
        return fuse(super().recurrence(part), self.products)

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        # The fused layers are faster mainly in their backward pass
        pays = torch.is_grad_enabled() or len(embedded) >= MIN_SENTENCES
        if pays and embedded.device.type == "cpu":
            return self.run_layers(embedded, lengths, mask)
        return super().forward(embedded, lengths, mask)


class Marginal(marginal.Marginal):
    """Readout of exact hard attention that reads a memory once per search, on a CPU."""

    products: Products

    def of_memory(self, memory: Memory) -> Tensor:
        if torch.is_grad_enabled() or self.training or memory.states.is_cuda:
            return super().of_memory(memory)
        return self.products.once("of_memory", memory.states, partial(super().of_memory, memory))


class RepeatsSteps(seq2seq.Seq2Seq):
    """Mix-in of networks whose search reuses prepacked weights and, on a GPU, graphs of its step."""

    products: Products

    def encode_embedded(self, embedded: Tensor, batch: Batch) -> tuple[seq2seq.Encoded, Any]:
        self.products.begin()
        if embedded.is_cuda and not torch.is_grad_enabled():
            self.products.graphs.check([*self.parameters(), *self.buffers()], self.decoder.attention)
        return super().encode_embedded(embedded, batch)

    def embed(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        embedding = self.target_embedding
        is_plain = type(embedding).forward is TokenEmbedding.forward and not self.training
        size = embedding.table.num_embeddings
        if tokens.is_cuda or torch.is_grad_enabled() or not is_plain or size > MAX_TABLE * tokens.numel():
            return super().embed(tokens)
        vocabulary = torch.arange(size)[None]  # [1, V]
        table = self.products.once("embed", embedding.table.weight, partial(super().embed, vocabulary))
        rows = embedding.in_vocabulary(tokens)  # [B, Q]
        embedded, inputs = (part[0][rows] for part in table)
        return embedded, inputs

    def step(self, tokens: Tensor, state: Any, encoded: seq2seq.Encoded) -> tuple[Tensor, Tensor, Any]:
        if not tokens.is_cuda or torch.is_grad_enabled():
            return super().step(tokens, state, encoded)
        result: tuple[Tensor, Tensor, Any] = self.products.graphs(super().step, (tokens, state), encoded)
        return result

    def reorder(self, state: Any, sentences: Tensor, hypotheses: Tensor) -> Any:
        selected = super().reorder(state, sentences, hypotheses)
        if not hypotheses.is_cuda:
            self.products.share_rows(selected, sentences[:, None] * hypotheses.size(1) + hypotheses)
        return selected


class MarginalSeq2Seq(RepeatsSteps, marginal.MarginalSeq2Seq):
    """Encoder-decoder network with exact hard attention."""


class Seq2Seq(RepeatsSteps):
    """Encoder-decoder network whose decoder runs in the fused loop or layer by layer, if possible."""

    def begin_unroll(self, encoded: seq2seq.Encoded, state: Any, labels: Tensor) -> Unroll:
        if is_constant(self.decoder):
            return ConstantUnroll(self.decoder, state, encoded.memory, encoded.keys)
        if unsupported(self.decoder) is not None:
            return super().begin_unroll(encoded, state, labels)
        return FusedUnroll(self.decoder, state, encoded.memory, encoded.keys, labels, self.products)


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


def search_precision(network: nn.Module) -> Literal["bf16", "int8"] | None:
    """Return the precision in which searches are fastest on this machine; None for that of the network.

    On a CPU it is None for plain networks and for those without large weights.
    """
    if next(network.parameters()).is_cuda:
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else None
    fast = any(type(part) in PLAIN for part in network.modules())
    return narrow_precision() if fast and has_large_weights(network) else None


@contextmanager
def int8_products(network: nn.Module) -> Iterator[None]:
    """Let searches on a CPU multiply by large weights in int8.

    Raises:
        UsageError: if no part of the network is fast, on a GPU, or if PyTorch was built without oneDNN.
    """
    parts: list[Any] = [part for part in network.modules() if type(part) in PLAIN]
    on_gpu = next(network.parameters()).is_cuda
    if not parts or on_gpu or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        raise UsageError("search.precision=int8 needs fused=true, a CPU and PyTorch with oneDNN. Try bf16")
    for part in parts:
        part.products.int8 = True
    try:
        yield
    finally:
        for part in parts:
            part.products.int8 = False


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
