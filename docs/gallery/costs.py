"""Count the operations of every attention mechanism: the table of `docs/explanation/attention.md`.

$ python docs/gallery/costs.py
"""

from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from attnlab.config.options import CONF
from attnlab.types import Memory

S, D, H = 20, 256, 256
"""Source length, memory size and query size; the other sizes are those of the options."""


class Count(TorchDispatchMode):
    """Operations in matrix products and convolutions, and numbers that all other operations compute.

    A multiply-add is two operations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products = 0
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an operation and count it."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry:
            self.products += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
        elif not func.is_view:
            self.numbers += sum(part.numel() for part in tree_leaves(result) if isinstance(part, Tensor))
        return result


def costs(name: str) -> tuple[Count, Count]:
    """Return the operations of an option in training, once per sentence and per target position."""
    with initialize_config_dir(str(CONF), version_base=None):
        config = compose("train", overrides=[f"attention={name}"])
    attention = instantiate(config.attention)(query_size=H, memory_size=D)
    memory = Memory(states=torch.randn(1, S, D), mask=torch.ones(1, S, dtype=torch.bool))
    query = torch.randn(1, 1, H)
    with Count() as sentence:
        keys = attention.project(memory)
        state = attention.begin(memory)
    with Count() as position:
        attention(query, memory, keys, state)
    return sentence, position


def table() -> str:
    """Return the table in Markdown, in thousands of operations."""
    lines = [
        "| `attention=` | products per sentence | products per position | other operations per position |",
        "| --- | ---: | ---: | ---: |",
    ]
    for path in sorted((CONF / "attention").glob("*.yaml")):
        if path.stem == "none_matched":  # the mechanism of `none`
            continue
        sentence, position = costs(path.stem)
        counts = (sentence.products, position.products, position.numbers)
        lines.append(" | ".join([f"| `{path.stem}`", *(f"{count / 1000:,.1f}" for count in counts)]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
