"""The arithmetic that a network cannot do without, for measuring how much of a machine is put to use."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import PAD, Batch, Memory


class AttentionFlops(NamedTuple):
    """What attention costs in products, a multiply-add counted as two operations."""

    key: float  # a memory position, once a sentence
    query: float  # a target position, whatever the source
    pair: float  # a target position and a memory position


def useful_flops(network: Seq2Seq, batch: Batch) -> float:
    """Operations of a forward pass over a batch's real tokens, a multiply-add counted as two.

    Every weight matrix is one product for each token that passes it, and attention costs what
    `attention_flops` finds. What padding, repeated projections or recomputation add is left out, and so is
    what is no product: the additions and the tanh of additive attention, activations, the softmax. Training
    is three times as much: a product has two more in its backward pass.
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
    """Counted by torch on one sentence of two lengths, since every mechanism is linear in both.

    In fp64, whose products are all torch's own: it does not count those of oneDNN.
    """
    network = copy.deepcopy(network).cpu().double().eval()
    decoder = network.decoder
    short, long = 16, 32
    width = network.source_embedding.table.embedding_dim
    found = []
    for length in (short, long):
        lengths, mask = torch.tensor([length]), torch.ones(1, length, dtype=torch.bool)
        memory: Memory = network.encoder(torch.zeros(1, length, width).double(), lengths, mask)
        query = torch.zeros(1, 1, decoder.attention.query_size).double()
        with FlopCounterMode(display=False) as projecting:
            keys = decoder.attention.project(memory)
        state = decoder.attention.begin(memory)
        with FlopCounterMode(display=False) as attending:
            decoder.attention(query, memory, keys, state)
        found.append((projecting.get_total_flops(), attending.get_total_flops()))
    (_, less), (projected, more) = found
    pair = (more - less) / (long - short)
    return AttentionFlops(key=projected / long, query=more - pair * long, pair=pair)


def _weights(module: nn.Module) -> int:
    """The numbers in a module's weight matrices."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)
