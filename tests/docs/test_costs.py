"""The table of costs of the attention mechanisms."""

import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def rows(text: str) -> dict[str, list[float]]:
    """Return the numbers of each row of a Markdown table, by the name in the first column."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")][1:]
    return {name: [float(number.replace(",", "")) for number in numbers] for name, *numbers in cells}


@pytest.mark.slow
def test_table_of_costs_is_recomputed() -> None:
    page = (DOCS / "explanation" / "attention.md").read_text().partition("## Costs")[2].partition("\n## ")[0]
    stated, computed = rows(page), rows(runpy.run_path(str(DOCS / "gallery" / "costs.py"))["table"]())
    assert stated.keys() == computed.keys()
    for name, (sentence, position, other) in computed.items():
        assert stated[name][:2] == [sentence, position], name
        assert stated[name][2] == pytest.approx(other, rel=0.1, abs=0.1), name  # versions of torch differ
    assert computed["`additive`"][0] == round(2 * 20 * 256 * 64 / 1000, 1)  # 2·S·D·A: the keys U h_j
    assert computed["`dot`"][1] == round(4 * 20 * 256 / 1000, 1)  # 2·S·D each: scores and weighted sum
