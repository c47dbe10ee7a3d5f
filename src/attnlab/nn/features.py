"""Networks for the features of a source, such as those of an inflected form.

Features follow the text of their source as tokens of their own: `d e v e ⟨N⟩ ⟨ACC⟩`, see
`attnlab.data.features`. The first feature of a source and all tokens after it are its features; a source may
have none. Positions stay those of the whole source, so that weights [B, T, S] show text and features.
"""

from abc import ABC, abstractmethod
from typing import TypedDict, Unpack

import torch
from torch import Tensor, nn

from attnlab.nn.encoders import Encoder
from attnlab.types import Batch, Memory


class Sizes(TypedDict):
    """Arguments that every option of `conf/features/` is built with."""

    is_feature: Tensor  # [V] bool, True at the source tokens that are features
    input_size: int  # E
    memory_size: int  # D of the encoder


class Features(nn.Module, ABC):
    """Base class of the options of `conf/features/`."""

    is_feature: Tensor

    def __init__(self, **sizes: Unpack[Sizes]) -> None:
        super().__init__()
        self.register_buffer("is_feature", sizes["is_feature"], persistent=False)

    @abstractmethod
    def forward(self, encoder: Encoder, embedded: Tensor, batch: Batch) -> Memory:
        """Encode the sources of a batch, embedded as [B, S, E], with the encoder of the network."""

    def text_lengths(self, batch: Batch) -> Tensor:
        """Return the number of tokens before the first feature, at least 1, [B] int64 on the CPU."""
        is_feature = self.is_feature.index_select(0, batch.source.flatten()).view_as(batch.source)  # [B, S]
        first = is_feature.int().argmax(dim=1).cpu()  # [B]
        return torch.where(is_feature.any(dim=1).cpu(), first, batch.source_lengths).clamp(min=1)


class Concatenated(Features):
    """The encoder of the network reads text and features as one sequence."""

    def forward(self, encoder: Encoder, embedded: Tensor, batch: Batch) -> Memory:
        return encoder(embedded, batch.source_lengths, batch.source_mask)  # type: ignore[no-any-return]


class LinearFeatures(Features):
    """A linear map of the features is added to the states of the text, which alone is attended to.

    ::

        h_j ← h_j + W Σ_k e(f_k)        also to the final states h, not to the cells
    """

    def __init__(self, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.map = nn.Linear(sizes["input_size"], sizes["memory_size"], bias=False)

    def forward(self, encoder: Encoder, embedded: Tensor, batch: Batch) -> Memory:
        lengths = self.text_lengths(batch)  # [B]
        positions = torch.arange(embedded.size(1), device=embedded.device)  # [S]
        mask = positions < lengths.to(embedded.device)[:, None]  # [B, S]
        memory: Memory = encoder(embedded, lengths, mask)
        features = batch.source_mask & ~mask  # [B, S]
        shift = self.map((embedded * features[..., None]).sum(dim=1, keepdim=True))  # [B, 1, D]
        hidden = None if memory.hidden is None else memory.hidden + shift  # [B, L, D]
        return memory._replace(states=memory.states + shift, hidden=hidden)
