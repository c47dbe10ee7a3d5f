import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)  # the networks are tiny: threads would cost more than they give
settings.register_profile("attnlab", deadline=None, derandomize=True)
settings.load_profile("attnlab")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
