"""FLOP counts of a network's useful operations, from which hardware utilisation follows."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attnlab.nn.attention.per_layer import PerLayer
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import PAD, Batch, Memory


class AttentionFlops(NamedTuple):
    """Operations of attention in matrix products, a multiply-add counted as two."""

    key: float  # per memory position, once per sentence
    query: float  # per target position
    pair: float  # per pair of a target and a memory position


def useful_flops(network: Seq2Seq, batch: Batch) -> float:
    """Count the operations of a forward pass over a batch's real tokens, a multiply-add counted as two.

    Every weight matrix is one product per token, and attention costs `attention_flops`. Padding, repeated
    projections and recomputation are not counted, nor are operations other than products: the additions and
    the tanh of additive attention, activations, the softmax. Training is three times as much, because the
    backward pass of a product has two products.
    """
    source = batch.source_lengths.double()  # [B]
    target = (batch.labels != PAD).sum(dim=1).cpu().double()  # [B]
    attention = attention_flops(network)
    decoder = _weights(network.decoder) - _weights(network.decoder.attention)
    each_source = 2 * _weights(network.encoder) + attention.key
    each_target = 2 * (decoder + _weights(network.readout)) + attention.query
    flops: Tensor = (
        each_source * source.sum()
        + each_target * target.sum()
        + attention.pair * (source * target).sum()
        + 2 * _weights(network.bridge) * len(source)
    )
    return flops.item()


@torch.no_grad()
def attention_flops(network: Seq2Seq) -> AttentionFlops:
    """Count the operations of attention with torch, on sentences of two lengths.

    Every mechanism is linear in the source and the target length.
    """
    network = copy.deepcopy(network).cpu().eval()
    attention = network.decoder.attention
    mechanisms = attention.mechanisms if isinstance(attention, PerLayer) else [attention]
    short, long = 16, 32
    width = network.source_embedding.width
    counts = []
    for length in (short, long):
        lengths, mask = torch.tensor([length]), torch.ones(1, length, dtype=torch.bool)
        memory: Memory = network.encoder(torch.zeros(1, length, width), lengths, mask)
        with FlopCounterMode(display=False) as projecting:
            keys = [mechanism.project(memory) for mechanism in mechanisms]
        with FlopCounterMode(display=False) as attending:
            for mechanism, projected in zip(mechanisms, keys, strict=True):
                query = torch.zeros(1, 1, mechanism.query_size)
                mechanism(query, memory, projected, mechanism.begin(memory))
        counts.append((projecting.get_total_flops(), attending.get_total_flops()))
    (_, less), (projected, more) = counts
    pair = (more - less) / (long - short)
    return AttentionFlops(key=projected / long, query=more - pair * long, pair=pair)


def _weights(module: nn.Module) -> int:
    """Count the elements of a module's weight matrices; tables of positions are only read."""
    return sum(
        parameter.numel()
        for part in module.modules()
        if not isinstance(part, nn.Embedding)
        for parameter in part.parameters(recurse=False)
        if parameter.dim() > 1
    )
