import torch
import torch.nn.functional as F

from attnlab.nn.embedding import TokenEmbedding
from attnlab.types import PAD

V, E, B, T = 23, 5, 7, 11


def tokens() -> torch.Tensor:
    return torch.randint(1, V, (B, T))


def test_embedding_lookup() -> None:
    embedding = TokenEmbedding(vocabulary_size=V, size=E)
    assert embedding.size == E
    embedded = embedding(torch.tensor([[4, PAD, 5]]))
    assert embedded.shape == (1, 3, E)
    assert torch.equal(embedded[0, 0], embedding.table.weight[4])
    assert torch.equal(embedded[0, 2], embedding.table.weight[5])
    assert not embedded[0, 1].any()


def test_padding_stays_zero_in_training() -> None:
    embedding = TokenEmbedding(vocabulary_size=V, size=E)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=1.0)
    before = embedding.table.weight.detach().clone()
    (embedding(torch.tensor([[4, PAD]])) - 1).square().sum().backward()
    optimizer.step()
    assert not embedding.table.weight[PAD].any()
    assert not torch.equal(embedding.table.weight[4], before[4])


def test_word_dropout_zeroes_whole_tokens_and_scales_the_rest() -> None:
    embedding = TokenEmbedding(vocabulary_size=V, size=E, word_dropout=0.75)
    inputs = tokens()
    ratio = embedding(inputs) / F.embedding(inputs, embedding.table.weight)  # [B, T, E]
    assert torch.equal(ratio[..., :1].expand_as(ratio).round(), ratio.round())
    assert set(ratio.round().unique().tolist()) == {0.0, 4.0}  # dropped, or 1 / (1 - 0.75)
    dropped = (ratio[..., 0] == 0).float()
    assert 0.5 < dropped.mean() < 0.95
    assert dropped.std(dim=0).max() > 0  # sentences
    assert dropped.std(dim=1).max() > 0  # and positions differ


def test_dropout_zeroes_single_elements() -> None:
    embedded = TokenEmbedding(vocabulary_size=V, size=E, dropout=0.5)(tokens())
    dropped = (embedded == 0).float().mean(dim=-1)
    assert ((dropped > 0) & (dropped < 1)).any()


def test_no_dropout_in_evaluation() -> None:
    embedding = TokenEmbedding(vocabulary_size=V, size=E, dropout=0.5, word_dropout=0.5).eval()
    inputs = tokens()
    assert torch.equal(embedding(inputs), F.embedding(inputs, embedding.table.weight))
