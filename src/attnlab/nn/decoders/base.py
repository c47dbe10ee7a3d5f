"""Abstract base class of decoders, and the types that they share."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnlab.nn.attention import Attention
from attnlab.nn.cells import CellState, StateShape
from attnlab.types import Memory


class DecoderState(NamedTuple):
    """State of a recurrent decoder between two target positions; every tensor starts with [B, Q]."""

    layers: tuple[CellState, ...]
    attention: Any  # state of the attention mechanism, or None
    dropout: tuple[Tensor, ...] = ()  # recurrent dropout factors of each layer, [B, Q, H]
    feed: Tensor | None = None  # attentional vector that is fed back, [B, Q, H]


class DecoderOutput(NamedTuple):
    """Input of the readout at each target position."""

    states: Tensor  # [B, T, H]
    contexts: Tensor  # [B, T, D], of width 0 without attention
    weights: Tensor  # [B, T, S]


class Decoder(nn.Module, ABC):
    """Computes the states of target positions, with attention over the memory.

    A subclass calls `super().__init__` and implements `begin` and `step`. It overrides `project` to compute
    parts of all steps at once, and `forward` if a whole target can be computed faster than step by step, with
    results equal to 1e-5. `input_size` and `attention` are passed in.

    A state is a tuple, possibly nested, of tensors [B, Q, …]: a search selects from it by sentence and
    hypothesis. Nothing is stored on the module between calls.

    Args:
        attention: the mechanism.
        output_size: width H of `DecoderOutput.states`.
        state_shape: shape of the initial state that the bridge computes.
        input_size: E
        size: H, the number of units.
        positions: kind of position encoding, see `attnlab.nn.positions`.
        max_positions: longest target with `positions="learned"`, in tokens.
    """

    def __init__(self, *, attention: Attention, output_size: int, state_shape: StateShape) -> None:
        super().__init__()
        self.attention = attention
        self.output_size = output_size
        self.state_shape = state_shape

    @property
    def context_size(self) -> int:
        """Width of `DecoderOutput.contexts`: that of the attention by default."""
        return self.attention.context_size

    @abstractmethod
    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> Any:
        """Return the state before the first token, from the bridge's L states, tensors [B, 1, H]."""

    def project(self, embedded: Tensor) -> Tensor:
        """Return the inputs of the steps [B, T, …]: everything that depends on the tokens [B, T, E] alone."""
        return embedded

    @abstractmethod
    def step(self, inputs: Tensor, state: Any, memory: Memory, keys: Tensor) -> tuple[DecoderOutput, Any]:
        """Process one token of each of Q hypotheses per sentence; return the output [B, Q, …] and the state.

        Args:
            inputs: the token before, projected by `project`, [B, Q, …].
            state: the result of `begin` or of the previous step, tensors [B, Q, …].
            memory: encoder outputs, states [B, S, D].
            keys: projected memory, `attention.project(memory)`.
        """

    def forward(self, embedded: Tensor, state: Any, memory: Memory, keys: Tensor) -> DecoderOutput:
        """Process a whole target [B, T, E] from the state before its first token; outputs are [B, T, …]."""
        outputs = []
        for inputs in torch.split(self.project(embedded), 1, dim=1):  # each [B, 1, …]
            output, state = self.step(inputs, state, memory, keys)
            outputs.append(output)
        return DecoderOutput(*(torch.cat(parts, dim=1) for parts in zip(*outputs, strict=True)))


def attend_positions(
    attention: Attention,
    queries: Tensor,
    memory: Memory,
    keys: Tensor,
    state: Any,
    *,
    positions: int,
    likelihood: Tensor | None = None,
) -> tuple[Tensor, Tensor, Any]:
    """Attend with queries [B, Q, H] of several target positions, or of several hypotheses at one position.

    A mechanism without state is called once for all queries. One with state observes each token after its
    position if its `likelihood` log p(y_i | s_i, h_j) [B, T, S] is given. Returns as the mechanism.
    """
    if not attention.stateful:
        return attention(queries, memory, keys, state)  # type: ignore[no-any-return]
    contexts, weights = [], []
    for i, query in enumerate(queries.chunk(positions, dim=1)):
        context, weight, state = attention(query, memory, keys, state)
        if likelihood is not None:
            state = attention.observe(state, likelihood[:, i : i + 1])
        contexts.append(context)
        weights.append(weight)
    return torch.cat(contexts, dim=1), torch.cat(weights, dim=1), state


class Unroll:
    """Unroll of a decoder over whole targets: `step` while tokens are sampled, then `finish`."""

    def __init__(self, decoder: Decoder, state: Any, memory: Memory, keys: Tensor) -> None:
        self.decoder = decoder
        self.first = state
        self.current = state
        self.memory = memory
        self.keys = keys

    @torch.no_grad()
    def step(self, embedded: Tensor) -> DecoderOutput:
        """Process one token [B, 1, E] without gradients; return its output [B, 1, …]."""
        inputs = self.decoder.project(embedded)  # [B, 1, …]
        output, self.current = self.decoder.step(inputs, self.current, self.memory, self.keys)
        return output

    def finish(self, embedded: Tensor) -> DecoderOutput:
        """Process the whole target [B, T, E], whose first tokens are those given to `step`."""
        output: DecoderOutput = self.decoder(embedded, self.first, self.memory, self.keys)
        return output
