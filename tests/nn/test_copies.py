"""Selection of hypotheses whose states are copies of each other."""

import torch

from attnlab.nn.copies import marked_copies, select_hypotheses
from attnlab.nn.seq2seq import select


def test_selected_hypotheses_know_their_copies() -> None:
    tree = (torch.randn(3, 2, 4), [torch.randn(3, 2), None], torch.randn(3, 1, 5))
    sentences, beams = torch.tensor([0, 2]), torch.tensor([[1, 0, 1], [0, 0, 0]])
    selected = select_hypotheses((tree[0], tree[1]), sentences, beams)
    expected = select((tree[0], tree[1]), sentences[:, None], beams)
    assert torch.equal(selected[0], expected[0])
    assert torch.equal(selected[1][0], expected[1][0])
    assert selected[1][1] is None
    copies = marked_copies(selected[0])
    assert copies is not None
    rows, places = copies.distinct
    assert len(rows) == 3
    assert torch.equal(selected[0].flatten(0, 1)[rows][places], selected[0].flatten(0, 1))
    single = select_hypotheses(tree[2], sentences, torch.zeros(2, 3, dtype=torch.int64))
    assert torch.equal(single, tree[2][[0, 2]].expand(-1, 3, -1))
    selected[0].mul_(2)
    assert marked_copies(selected[0]) is None
