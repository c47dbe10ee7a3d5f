"""A network whose output is a logistic function of a weighted sum of its embedded source."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.seq2seq import Decoded
from attnlab.types import Batch
from networks import make_batch

TOKEN = 3
"""The only target token beside EOS: p = σ(z)."""


class Toy(nn.Module):
    """z = Σ_j α_j w·x_j with fixed α, the same at each target position; p(TOKEN) = σ(z), p(EOS) = σ(-z)."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = torch.tensor([0.5, 0.3, 0.2, 0.0])
        self.w = torch.tensor([3.0, 4.0])
        self.source_embedding = nn.Embedding(7, 2)
        with torch.no_grad():
            vectors = [(0, 0), (0, 0), (0, 0), (0, 0), (1.0, 0.25), (0.0, 0.5), (-0.5, 1.0)]
            self.source_embedding.weight.copy_(torch.tensor(vectors))
        self.decoder = SimpleNamespace(attention=None)

    def forward(self, batch: Batch) -> Decoded:
        return self.decode(*self.encode_embedded(self.source_embedding(batch.source), batch), batch)

    def encode_embedded(self, embedded: Tensor, batch: Batch) -> tuple[Any, None]:
        return (embedded, self.alpha[: batch.source.size(1)] * batch.source_mask), None

    def decode(self, encoded: Any, state: None, batch: Batch) -> Decoded:
        embedded, alpha = encoded
        z = (alpha * (embedded @ self.w)).sum(dim=-1)  # [B]
        steps = batch.inputs.size(1)
        return Decoded(z[:, None, None].expand(-1, steps, 1), alpha[:, None].expand(-1, steps, -1))

    def logits(self, decoded: Decoded, copy_ids: None, where: Tensor) -> Tensor:
        z = decoded.features[where]  # [N, 1]
        never = torch.full_like(z, -torch.inf)
        return torch.cat([never, never, torch.zeros_like(z), z], dim=-1)


def toy_batch() -> Batch:
    """Tokens 4, 5, 6 with w·x = 4, 2, 2.5: z = 2 + 0.6 + 0.5 = 3.1."""
    return make_batch([[4, 5, 6]], [[TOKEN]])
