"""The loop of an attentional decoder, in Bahdanau's order and in Luong's, with its backward pass.

Every step writes its tensors to buffers of all T steps, and processes only the sentences that have not ended.
In the backward pass, a step computes only the gradients of its gates and queries: the gradient of a weight is
one product over the N rows of all steps, after the loop.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnlab.fast.attend import AttentionBackward, AttentionForward
from attnlab.fast.cells import widest, write_tanh
from attnlab.fast.function import Work
from attnlab.fast.linear import outer, prepack
from attnlab.fast.stack import Inputs, Options, StackBackward, StackForward


class LoopForward:
    """Forward pass of the loop: every step writes its rows of the buffers.

    The first layer reads [x; u]: x, the embedded token, and a feed u, which is the context c in Bahdanau's
    order and the attentional vector h̃ = tanh(W [c; s]) of the step before in Luong's order. The input gates
    W x + b are known for all steps.
    """

    def __init__(self, options: Options, inputs: Inputs, dtype: torch.dtype) -> None:
        self.rows = options.rows
        memory, steps = inputs.attended.memory, len(options.rows.counts)
        with torch.autocast(memory.device.type, enabled=False):
            self.stack = StackForward(options, inputs, dtype)
            self.attention = AttentionForward(inputs.attended, options.temperature, steps, dtype)
            if inputs.combine is None:
                self.combine = None
                self.top = self.stack.layers[-1].state[0].to(dtype)  # [B, H]
            else:
                self.combine = prepack(inputs.combine, None, dtype)
                size = len(inputs.combine)
                self.attentional = memory.new_empty(options.rows.total, size, dtype=dtype)  # h̃ [N, H]
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
                combined = self.combine(torch.cat([context, top], dim=1))  # [n, H]
                self.top = self.attentional[rows].copy_(write_tanh(combined, combined))
        self.done += 1
        return self.top, context, self.attention.weights[i, :n]


@dataclass(frozen=True)
class Loop(Work):
    """All steps, or those that remain of a forward pass that has begun, with their backward pass."""

    options: Options
    begun: LoopForward | None

    @property
    def save(self) -> bool:
        return self.options.save

    @property
    def key(self) -> Hashable:
        return None if self.begun else self.options

    def forward(self, gates: Tensor, inputs: Inputs) -> tuple[tuple[Tensor, ...], Any]:
        rows = self.options.rows
        forward = self.begun or LoopForward(self.options, inputs, gates.dtype)
        for step_rows in rows.slices[forward.done :]:
            forward.step(gates[step_rows])
        attention, states = forward.attention, forward.states
        outputs = rows.pad(states), attention.contexts, attention.weights
        return outputs, (attention.queries, *outputs[1:], states, forward.stack.saved)

    def backward(
        self, inputs: Inputs, saved: Any, d_outputs: Sequence[Tensor | None]
    ) -> tuple[Tensor | None, Inputs]:
        options, (queries, contexts, weights, states, layers) = self.options, saved
        with torch.autocast(weights.device.type, enabled=False):
            stack = StackBackward(options, inputs, layers)
            attention = AttentionBackward(
                inputs.attended, options.temperature, queries, weights, contexts.dtype
            )
            if inputs.combine is None:
                feed, queried, d_combine = _bahdanau_backward(stack, attention, contexts, d_outputs)
            else:
                products = stack, attention, inputs, contexts, states
                feed, queried, d_combine = _luong_backward(*products, d_outputs)
            d_attended = attention.gradients(options.rows, queried)
            d_layers = stack.weights(inputs, feed)
        d_state = [layer.d_state for layer in stack.layers]
        no_dropout: list[Any] = [None] * len(inputs.dropout)
        return stack.d_inputs[0], Inputs(d_attended, d_combine, d_layers, d_state, no_dropout)


OutputGradients = Sequence[Tensor | None]
"""Gradients of the returned states, contexts and weights, each [T, B, …]."""


def _bahdanau_backward(
    stack: StackBackward, attention: AttentionBackward, contexts: Tensor, d_outputs: OutputGradients
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
