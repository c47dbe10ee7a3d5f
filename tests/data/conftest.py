import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a file of the given bytes or text, or of any other value as JSON; return its path."""

    def write(content: object, name: str = "pairs.tsv") -> str:
        text = content if isinstance(content, bytes | str) else json.dumps(content)
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(tmp_path / name)

    return write
