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


def test_marks_follow_the_learned_dimensions_without_dropout() -> None:
    marks = torch.randn(V, 2)
    embedding = TokenEmbedding(vocabulary_size=V, size=E, dropout=0.9, word_dropout=0.5, marks=marks)
    inputs = tokens()
    embedded = embedding(inputs)
    assert embedded.shape == (B, T, E + 2)
    assert embedding.width == E + 2
    assert torch.equal(embedded[..., E:], marks[inputs])
    assert (embedded[..., :E] == 0).any()


def test_a_token_is_read_as_several_others() -> None:
    readings = torch.tensor([[id, id] for id in range(V)])
    readings[5] = torch.tensor([4, 1])
    marks = torch.randn(V, 3)
    embedding = TokenEmbedding(
        vocabulary_size=V, size=E, word_dropout=0.5, marks=marks, readings=readings
    ).eval()
    embedded, table = embedding(torch.tensor([[5, 3]]))[0], embedding.table.weight
    assert embedding.width == 2 * E + 3
    assert torch.equal(embedded[0], torch.cat([table[4], table[1], marks[5]]))
    assert torch.equal(embedded[1], torch.cat([table[3], table[3], marks[3]]))
    factors = torch.tensor([0.0, 2.0])[None, :, None].expand(1, 2, E)
    dropped = embedding(torch.tensor([[5, 3]]), factors)[0]
    assert torch.equal(dropped[:, : 2 * E], torch.tensor([[0.0], [2.0]]) * embedded[:, : 2 * E])
