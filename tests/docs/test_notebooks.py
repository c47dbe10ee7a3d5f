"""The notebooks of the documentation, which `make docs` executes."""

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_saved_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_tutorials_list_every_notebook() -> None:
    index = (DOCS / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert NOTEBOOKS
    assert all(f"../notebooks/{path.stem}\n" in index for path in NOTEBOOKS)
