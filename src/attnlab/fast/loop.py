"""The loop of an attentional decoder, in Bahdanau's order and in Luong's, with its backward pass.

Every step writes its tensors to buffers of all T steps, and processes only the sentences that have not ended.
In the backward pass, a step computes only the gradients of its gates and queries: the gradient of a weight is
one product over the N rows of all steps, after the loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.fast.attend import AttentionBackward, AttentionForward, Scores
from attnlab.fast.cells import tanh_, widest
from attnlab.fast.function import run
from attnlab.fast.linear import outer, prepack
from attnlab.fast.rows import Rows
from attnlab.fast.stack import Inputs, Options, StackBackward, StackForward, Weights, name_inputs


class DecoderLoop:
    """Unroll of a decoder over whole targets, whose first tokens may be sampled step by step.

    The first layer reads [x; u]: x, the embedded token, and a feed u, which is the context c in Bahdanau's
    order and the attentional vector h̃ = tanh(W [c; s]) of the step before in Luong's order. The input gates
    W x + b are known for all steps. ::

        loop = DecoderLoop(…)
        loop.step(gates_0), loop.step(gates_1), …      any number of steps, none by default
        loop.finish(gates)                             the remaining steps, with a backward pass through all

    Args:
        kind: "lstm" or "gru".
        layers: weights of each layer.
        state: initial h (and c) of each layer, [B, H].
        scores: parameters of the attention's scores.
        memory: [B, S, D].
        keys: [B, S, A].
        mask: [B, S], True at real positions.
        rows: the rows that each of the T steps processes.
        combine: W [H, D + H] of h̃ in Luong's order; None for Bahdanau's order.
        dropout: factors of the input of each layer above the first, [N, H]; empty without dropout.
    """

    def __init__(
        self,
        kind: str,
        layers: Sequence[Weights],
        state: Sequence[Sequence[Tensor]],
        scores: Scores,
        memory: Tensor,
        keys: Tensor,
        mask: Tensor,
        rows: Rows,
        *,
        combine: Tensor | None = None,
        dropout: Sequence[Tensor] = (),
    ) -> None:
        save = torch.is_grad_enabled()
        self.options = Options(kind, len(layers), len(state[0]), scores.temperature, rows, save)
        self.tensors = [memory, keys, mask, *scores[1:], combine]  # scores without the temperature
        self.tensors += [part for *own, state in layers for part in (*own, *state)]
        self.tensors += [part for layer in state for part in layer]
        self.tensors += dropout
        self._forward: _Forward | None = None

    @torch.no_grad()
    def step(self, gates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Process one token of the n active sentences, without gradients.

        Args:
            gates: input gates W x + b of the first layer, [≥ n, gates].

        Returns:
            State [n, H], context [n, D] and weights [n, S].
        """
        if self._forward is None:
            self._forward = _Forward(self.options, name_inputs(self.options, self.tensors), gates.dtype)
        return self._forward.step(gates)

    def finish(self, gates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Process the remaining tokens.

        Args:
            gates: input gates of all tokens [N, gates], equal to those that `step` was given.

        Returns:
            States [T, B, H] (h̃ in Luong's order), contexts [T, B, D] and weights [T, B, S], zeros where a
            sentence has ended.
        """
        states, contexts, weights = run(_Loop(self.options, self._forward), gates, self.tensors)
        return states, contexts, weights


class _Forward:
    """Forward pass of the loop: every step writes its rows of the buffers."""

    def __init__(self, options: Options, inputs: Inputs, dtype: torch.dtype) -> None:
        self.rows = options.rows
        with torch.autocast(inputs.memory.device.type, enabled=False):
            self.stack = StackForward(options, inputs, dtype)
            scores = inputs.scores(options.temperature)
            steps = len(options.rows.counts)
            self.attention = AttentionForward(scores, inputs.memory, inputs.keys, inputs.mask, steps, dtype)
            if inputs.combine is None:
                self.combine = None
                self.top = self.stack.layers[-1].state[0].to(dtype)  # [B, H]
            else:
                self.combine = prepack(inputs.combine, None, dtype)
                size = len(inputs.combine)
                self.attentional = inputs.memory.new_empty(options.rows.total, size, dtype=dtype)  # h̃ [N, H]
                self.top = self.attentional.new_zeros(options.rows.batch, size)  # h̃_0 [B, H]
        self.done = 0

    @property
    def states(self) -> Tensor:
        """States that the steps returned, [N, H]."""
        return self.stack.layers[-1].outputs if self.combine is None else self.attentional

    def step(self, gates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute one step, given W x + b [≥ n, gates]: state [n, H], context [n, D], weights [n, S]."""
        i, rows = self.done, self.rows.slices[self.done]
        n = self.rows.counts[i]
        with torch.autocast(gates.device.type, enabled=False):
            gates = gates[:n].to(widest(gates.dtype))  # [n, gates]
            if self.combine is None:
                context = self.attention.step(i, self.top[:n])  # [n, D]
                self.top = self.stack.step(i, gates, context)
            else:
                top = self.stack.step(i, gates, self.top[:n])  # [n, H]
                context = self.attention.step(i, top)  # [n, D]
                attentional = tanh_(self.combine(torch.cat([context, top], dim=1)))  # [n, H]
                self.top = self.attentional[rows].copy_(attentional)
        self.done += 1
        return self.top, context, self.attention.weights[i, :n]


@dataclass(frozen=True)
class _Loop:
    """All steps, or those that remain of a forward pass that has begun, with their backward pass."""

    options: Options
    begun: _Forward | None

    @property
    def save(self) -> bool:
        return self.options.save

    @property
    def key(self) -> Hashable:
        rows = self.options.rows
        fixed = self.options._replace(rows=None)  # type: ignore[arg-type]
        return None if self.begun else (fixed, tuple(rows.counts), rows.batch)

    def forward(
        self, gates: Tensor, tensors: Sequence[Any]
    ) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
        options = self.options
        forward = self.begun or _Forward(options, name_inputs(options, tensors), gates.dtype)
        for rows in options.rows.slices[forward.done :]:
            forward.step(gates[rows])
        attention, states = forward.attention, forward.states
        outputs = options.rows.pad(states), attention.contexts, attention.weights
        saved = [attention.queries, attention.weights, attention.contexts, states]
        return outputs, [*saved, *forward.stack.saved]

    def backward(
        self, tensors: Sequence[Any], saved: Sequence[Any], d_outputs: Sequence[Tensor | None]
    ) -> tuple[Tensor | None, ...]:
        options, inputs = self.options, name_inputs(self.options, tensors)
        queries, weights, contexts, states, *layers = saved
        with torch.autocast(weights.device.type, enabled=False):
            stack = StackBackward(options, inputs, layers)
            scores = inputs.scores(options.temperature)
            attention = AttentionBackward(
                scores, inputs.memory, inputs.keys, queries, weights, contexts.dtype
            )
            backward = _bahdanau_backward if inputs.combine is None else _luong_backward
            feed, queried, d_combine = backward(stack, attention, inputs, contexts, states, d_outputs)
            d_memory, d_keys = attention.memories()
            d_layers = stack.weights(inputs, feed)
            d_scores = attention.parameters(options.rows, queried)
        d_gates = stack.d_inputs[0]
        d_state = [part for layer in stack.layers for part in layer.d_state]
        no_dropout = [None] * len(inputs.dropout)
        return d_gates, d_memory, d_keys, None, *d_scores, d_combine, *d_layers, *d_state, *no_dropout


OutputGradients = Sequence[Tensor | None]
"""Gradients of the returned states, contexts and weights, each [T, B, …]."""


def _bahdanau_backward(
    stack: StackBackward,
    attention: AttentionBackward,
    inputs: Inputs,
    contexts: Tensor,
    states: Tensor,
    d_outputs: OutputGradients,
) -> tuple[Tensor, Tensor, None]:
    """Return the feeds [N, D] and the queries [N, H] of all steps; there is no gradient of `combine`."""
    d_states, d_contexts, d_weights = d_outputs
    for i, n in reversed(list(enumerate(stack.rows.counts))):
        d_context = attention.d_contexts[i, :n]  # [n, D]
        d_context.copy_(stack.step(i, None if d_states is None else d_states[i, :n]))
        if d_contexts is not None:
            d_context += d_contexts[i, :n]
        d_top = attention.step(i, n, None if d_weights is None else d_weights[i])  # [n, H]
        stack.layers[-1].d_state[0][:n].add_(d_top)
    return stack.rows.pack(contexts), stack.layers[-1].before, None


def _luong_backward(
    stack: StackBackward,
    attention: AttentionBackward,
    inputs: Inputs,
    contexts: Tensor,
    states: Tensor,
    d_outputs: OutputGradients,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the feeds [N, H] and the queries [N, H] of all steps, and the gradient of `combine`."""
    assert inputs.combine is not None
    d_states, d_contexts, d_weights = d_outputs
    rows, D = stack.rows, contexts.size(2)
    combine = prepack(inputs.combine.T, None, states.dtype)
    d_combined = torch.empty_like(states)  # gradient of the input of tanh, [N, H]
    d_feed = states.new_zeros(rows.batch, states.size(1))  # [B, H]
    for i, n in reversed(list(enumerate(rows.counts))):
        step_rows = rows.slices[i]
        d_state = d_feed[:n] if d_states is None else d_feed[:n] + d_states[i, :n]  # [n, H]
        torch.ops.aten.tanh_backward.grad_input(d_state, states[step_rows], grad_input=d_combined[step_rows])
        d_context, d_top = combine(d_combined[step_rows]).tensor_split([D], dim=1)  # [n, D], [n, H]
        attention.d_contexts[i, :n] = d_context if d_contexts is None else d_context + d_contexts[i, :n]
        d_top = d_top + attention.step(i, n, None if d_weights is None else d_weights[i])
        d_feed[:n] = stack.step(i, d_top)
    tops = stack.outputs[-1]  # [N, H]
    padded = rows.pad(states)  # [T, B, H]
    feed = rows.pack(torch.cat([torch.zeros_like(padded[:1]), padded[:-1]]))  # [N, H]
    joined = torch.cat([rows.pack(contexts), tops], dim=1)  # [N, D + H]
    return feed, tops, outer(d_combined, joined)
