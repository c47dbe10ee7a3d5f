"""Encoder that reads a phrase in brackets as one symbol, and an unknown as each of its values."""

from collections.abc import Sequence
from typing import Protocol, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.embedding import EmbeddingSettings, TokenEmbedding
from attnlab.nn.encoders.base import Encoder
from attnlab.settings import Count, NotNegative, Size
from attnlab.types import Memory

MARKS = 2
"""Constant dimensions at the end of an embedded token: opens a phrase, closes one."""

SCALE = 10
"""Factor of the weights of the readings in the memory."""


class Tokens(Protocol):
    """A tokenizer, of which only the ids of tokens are needed."""

    def id_of(self, piece: str) -> int | None: ...


class PhraseEmbedding(TokenEmbedding):
    """Embedding whose last two dimensions are 1 at tokens that open a phrase and close one.

    The vectors of the K values of an unknown follow one another. Every other token is embedded K times.

    Args:
        tokenizer: tokenizer of the source.
        brackets: the tokens that open and close a phrase, or none: ().
        unknown: token that is read as each of `values`, such as x of an equation; None if there is none.
        values: tokens that the unknown can stand for.
        settings: arguments of `TokenEmbedding`.
    """

    marks: Tensor
    readings: Tensor

    def __init__(
        self,
        *,
        tokenizer: Tokens,
        brackets: Sequence[str] = ("(", ")"),
        unknown: str | None = None,
        values: Sequence[str | int] = (),
        **settings: Unpack[EmbeddingSettings],
    ) -> None:
        super().__init__(**settings)
        if len(brackets) not in {0, MARKS}:
            raise ValueError(f"brackets={[*brackets]}: must be two tokens, such as ['(',')'], or none: []")
        if (unknown is None) != (not values):
            raise ValueError("unknown is a token that is read as each of values: set both or none")

        def id_of(setting: str, token: str) -> int:
            number = tokenizer.id_of(token)
            if number is None:
                raise ValueError(f"{setting}: the training sources have no {token!r}. Give tokens they have")
            return number

        V = self.table.num_embeddings
        marks = torch.zeros(V, MARKS)
        for column, token in enumerate(brackets):
            marks[id_of("brackets", token), column] = 1
        readings = torch.arange(V)[:, None].repeat(1, max(1, len(values)))  # [V, K]
        if unknown is not None:
            readings[id_of("unknown", unknown)] = torch.tensor(
                [id_of("values", str(each)) for each in values]
            )
        self.register_buffer("marks", marks, persistent=False)
        self.register_buffer("readings", readings, persistent=False)

    @property
    def width(self) -> int:
        """Size of an embedded token, K·E + 2."""
        return self.readings.size(1) * self.size + MARKS

    def forward(self, tokens: Tensor, dropout: Tensor | None = None) -> Tensor:
        tokens = self.in_vocabulary(tokens)
        dropout = self.draw_dropout(tokens) if dropout is None else dropout  # [B, S, E]
        embedded = self.table(self.readings[tokens])  # [B, S, K, E]
        embedded = embedded if dropout is None else embedded * dropout[:, :, None]
        return torch.cat([embedded.flatten(2), self.marks[tokens]], dim=-1)


class Automaton(nn.Module):
    """Second-order automaton that calls itself for a phrase in brackets.

    ::

        δ(s, x) = softmax(s T x + ε)        T is U × U × E; one of U states, in evaluation the most probable
        s_t = δ(s_{t-1}, x_t)               at a token that is no bracket
        s_t = s_0                           at an opening bracket
        s_t = δ(s_{o-1}, W s_{t-1})         at the closing bracket of the one at o

    A closed phrase is read in the state before it, as a symbol whose vector W s stands for what the phrase
    means, like that of an embedded token. What is learned about tokens carries over to phrases, and to
    any depth. With the states before open brackets on a stack this is a pushdown automaton for a visibly
    pushdown language (Alur & Madhusudan 2004, doi 10.1145/1007352.1007390), whose tokens alone tell when it
    pushes and pops. The products of states and inputs are those of second-order networks (Giles et al. 1992,
    doi 10.1162/neco.1992.4.3.393).

    A closing bracket without an opening one is read in the state s_0.

    Args:
        size: U, the number of states.
        width: E, the size of a token's vector.
    """

    start: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.transition = nn.Parameter(2 * torch.randn(size, width * size) / width**0.5)  # T
        self.phrase = nn.Parameter(torch.randn(size, width))  # W
        self.register_buffer("start", F.one_hot(torch.tensor(0), size).float(), persistent=False)  # [U]: s_0

    def forward(self, tokens: Tensor, opens: Tensor, closes: Tensor, mask: Tensor, noise: float) -> Tensor:
        """Return the states after each token [B, S, U]; padding repeats the last one.

        Args:
            tokens: [B, S, E]
            opens: whether a token opens a phrase, [B, S].
            closes: whether a token closes a phrase, [B, S].
            mask: [B, S], True at real tokens.
            noise: standard deviation of ε.
        """
        state = self.start.to(tokens.dtype).expand(len(tokens), -1)  # [B, U]
        stack = state[:, None].repeat(1, 2 + int(opens.sum(dim=1).max()), 1)  # [B, P + 2, U], from s_0 up
        depth = opens.new_zeros(len(opens), dtype=torch.long)  # [B]
        states = []
        for t, real in enumerate(mask[..., None].unbind(dim=1)):
            opening, closing = opens[:, t, None], closes[:, t, None]  # each [B, 1]
            top = depth[:, None, None].expand(-1, 1, state.size(-1))  # [B, 1, U]
            before = torch.where(closing, stack.gather(1, top)[:, 0], state)
            symbol = torch.where(closing, state @ self.phrase, tokens[:, t])
            stack = stack.scatter(1, top + 1, state[:, None])  # counts only if the depth grows
            depth = (depth + opens[:, t].long() - closes[:, t].long()).clamp(min=0)
            following = torch.where(opening, self.start.to(state.dtype), self._read(before, symbol, noise))
            state = torch.where(real, following, state)
            states.append(state)
        return torch.stack(states, dim=1)

    def _read(self, state: Tensor, symbol: Tensor, noise: float) -> Tensor:
        """Return δ(s, x) [B, U] of states [B, U] and vectors [B, E]."""
        maps = (state @ self.transition).view(*symbol.shape, -1)  # [B, E, U]
        logits = torch.einsum("be,beu->bu", symbol, maps)
        if not self.training:
            return F.one_hot(logits.argmax(dim=-1), state.size(-1)).to(state.dtype)
        return torch.softmax(logits + noise * torch.randn_like(logits), dim=-1)


class NestedEncoder(Encoder):
    """The states s_1 … s_S of an `Automaton` as the memory.

    In training, the noise ε ~ N(0, σ²) makes the states distinct. It grows from 0, so that the network learns
    states before the noise makes them distinct.

    With K > 1 `readings`, an unknown of the source has K values, which are tokens, and the source is read K
    times, each time with another one in its place. Attention over these readings selects the value::

        a_t = softmax_k(vᵀ s_t^k)           s^k: the states of reading k; does an equation hold with value k?
        m_t = [Σ_k a_{t,k} s_t^k; 10 a_t]   the memory, D = U + K

    The factor 10 speeds up training: the decoder learns from a_t which answer each value stands for.

    Cost: 2·U·U·E operations at a token, one token after the other, K times as many with readings. Training
    keeps E·U + P·U numbers of each token, P the largest number of opening brackets, so that its memory grows
    with the square of the length.

    Args:
        input_size: K·E + 2
        size: U, the number of states.
        values: the K values of the unknown, as in `PhraseEmbedding`; none if there is no unknown.
        noise: σ, the standard deviation of the noise in training.
        ramp: number of training batches over which the noise grows from 0 to σ.
    """

    batches: Tensor

    def __init__(
        self,
        *,
        input_size: int,
        size: Size,
        values: Sequence[str | int] = (),
        noise: NotNegative = 2.0,
        ramp: Count = 3000,
    ) -> None:
        readings = max(1, len(values))
        super().__init__(memory_size=size if readings == 1 else size + readings, layers=1)
        self.automaton = Automaton(size, (input_size - MARKS) // readings)
        self.register_buffer("batches", torch.tensor(0))  # of training, until now
        if readings > 1:
            self.score = nn.Parameter(torch.randn(size) / size**0.5)  # v
        self.readings = readings
        self.noise = noise
        self.ramp = ramp

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        tokens, marks = embedded[..., :-MARKS], embedded[..., -MARKS:]
        opens, closes = ((marks > 0.5) & mask[..., None]).unbind(dim=-1)  # each [B, S]
        noise = 0.0
        if self.training:
            self.batches += 1
            noise = self.noise * min(1.0, int(self.batches) / max(1, self.ramp))
        if self.readings == 1:
            states: Tensor = self.automaton(tokens, opens, closes, mask, noise)
        else:
            K = self.readings
            readings = tokens.reshape(*tokens.shape[:2], K, -1).transpose(1, 2)  # [B, K, S, E]
            opens, closes, real = (x.repeat_interleave(K, dim=0) for x in (opens, closes, mask))
            states = self.automaton(readings.flatten(0, 1), opens, closes, real, noise)  # [B·K, S, U]
            states = states.view(-1, K, *states.shape[1:])  # [B, K, S, U]
            weights = torch.softmax(states @ self.score.to(states.dtype), dim=1)  # [B, K, S]: a
            selected = torch.einsum("bks,bksu->bsu", weights, states)
            states = torch.cat([selected, SCALE * weights.transpose(1, 2)], dim=-1)  # [B, S, D]
        return Memory(states, mask, hidden=states[:, -1:])
