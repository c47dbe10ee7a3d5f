"""Encoder whose memory is a differentiable stack."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.encoders.base import Encoder
from attnlab.settings import NotNegative, Size
from attnlab.types import Memory
from attnlab_parts.bits import sign

PUSH, POP, KEEP = range(3)
"""Actions on the stack, in the order of their logits."""


class StackEncoder(Encoder):
    """Differentiable pushdown automaton, to whose stack the decoder attends.

    ::

        u_t = tanh(W [x_t; k_{t-1,1}; s_{t-1}] + b)
        s_t = sign(V u_t + d + ε)                                ±1; the gradient is that of tanh
        a_t = softmax(A u_t + e + ε)                             push, pop, keep
        k_{t,j} = a_push k_{t-1,j-1} + a_pop k_{t-1,j+1} + a_keep k_{t-1,j}        k_{t-1,0} = [x_t; s_t]

    The stack k, with its top k_{t,1}, is the mixture of the results of three actions (Joulin & Mikolov 2015,
    arXiv 1503.01007, section 3.2). In evaluation a_t is 1 for the most probable action, so that nothing blurs
    over more steps than in training. As in `FiniteStateDecoder`, the state is one of 2^U. A push adds the
    token and the state, so D = E + U. The noise ε ~ N(0, σ²) of training drives the probabilities of actions
    to 0 or 1; without it, networks that mix actions in training can fail in evaluation.

    The memory is the stack after the last token, top first; empty cells below its lowest symbol are 0. So the
    attention weights are those of cells, not of tokens.

    Cost: 2·U·(2·D + U + 3) + 5·t·D operations at token t, one token after the other.

    Args:
        size: U, the number of bits of the state.
        noise: σ, the standard deviation of the noise in training.
    """

    def __init__(self, *, input_size: int, size: Size, noise: NotNegative = 1.0) -> None:
        super().__init__(memory_size=input_size + size, layers=1)
        self.hidden = nn.Linear(2 * self.memory_size, size)
        self.update = nn.Linear(size, size)
        self.action = nn.Linear(size, 3)
        self.noise = noise

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        symbol = embedded.new_zeros(len(embedded), self.memory_size)  # [B, D]: the last token and the state
        stack = empty = symbol[:, None]  # [B, 1, D]; the stack grows by a cell with every token
        for inputs, real in zip(embedded.unbind(1), mask[..., None].unbind(1), strict=True):
            state = symbol[:, inputs.size(1) :]  # [B, U]
            hidden = torch.tanh(self.hidden(torch.cat([inputs, stack[:, 0], state], dim=-1)))  # [B, U]
            state = sign(self._disturb(self.update(hidden)))
            symbol = torch.where(real, torch.cat([inputs, state], dim=-1), symbol)
            logits = self._disturb(self.action(hidden))  # [B, 3]
            best = torch.where(real[:, 0], logits.argmax(dim=-1), KEEP)  # [B]
            chosen = F.one_hot(best, 3)  # [B, 3]
            shares = torch.where(real, logits.softmax(dim=-1), chosen) if self.training else chosen
            stack = _act(shares.to(stack.dtype), stack, symbol[:, None], empty)  # [B, t + 2, D]
        return Memory(stack[:, : mask.size(1)], mask, hidden=symbol[:, None])

    def _disturb(self, x: Tensor) -> Tensor:
        """Add the noise ε in training to [B, …]."""
        return x + self.noise * torch.randn_like(x) if self.training and self.noise > 0 else x


def _act(shares: Tensor, stack: Tensor, symbol: Tensor, empty: Tensor) -> Tensor:
    """Return the mixture of the stacks after each action, with one more cell: [B, n + 1, …].

    Args:
        shares: of push, pop and keep, [B, 3].
        stack: top first, [B, n, …].
        symbol: what a push adds, [B, 1, …].
        empty: content of an empty cell, [B, 1, …].
    """
    n = stack.size(1)
    cells = torch.cat([symbol, stack, empty, empty], dim=1)  # [B, n + 3, …]
    push, pop, keep = shares[:, :, None, None].unbind(1)  # each [B, 1, 1]
    return push * cells[:, : n + 1] + pop * cells[:, 2:] + keep * cells[:, 1 : n + 2]
