import torch

from attnlab.nn.attention.additive import Additive
from attnlab.nn.attention.per_layer import PerLayer
from networks import random_memory

B, L, S, D, A = 2, 3, 7, 5, 4


def test_keys_of_each_layer_are_those_of_its_mechanism() -> None:
    mechanisms = [Additive(query_size=6, memory_size=D, size=A) for _ in range(L)]
    memory = random_memory([S, S], D)
    keys = PerLayer(mechanisms).project(memory)
    assert keys.shape == (B, L, S, A)
    for layer, mechanism in enumerate(mechanisms):
        torch.testing.assert_close(keys[:, layer], mechanism.project(memory))
