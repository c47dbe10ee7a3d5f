from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from attnlab.analysis.study import RunRecord
from attnlab.analysis.comparison import compare
from attnlab.report import tables
from attnlab.report.tables import Cell, Column, Table, escape_latex
from run_files import study

TEXTS = st.text(
    st.sampled_from("ab1_*`|\\<>[]{}$&#%~^!\"'-+.:/()=é·±あ א\n\t") | st.characters(exclude_categories=["C"])
)
LATEX_WORDS = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\textquotedbl{}": '"',
    r"\textperiodcentered{}": "·",
    r"$\pm$": "±",
    **{f"\\{character}": character for character in "{}$&#_%"},
}


def one_line(text: str) -> str:
    return " ".join(text.split())


def table(*texts: str) -> Table:
    return Table(
        "t", "T", [Column("name", numeric=False), Column("x_1")], [[Cell(t, t), Cell(t, 1.5)] for t in texts]
    )


def in_html(markdown: str) -> list[str]:
    """The texts of the cells that a Markdown reader finds."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [
        "".join(child.content for child in token.children or [] if child.type == "text")
        for token in tokens
        if token.type == "inline"
    ]


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_markdown_shows_every_text_as_it_is(texts: list[str]) -> None:
    shown = in_html(table(*texts).markdown())
    assert shown == ["name", "x_1", *(one_line(text) for text in texts for _ in range(2))]


@given(TEXTS)
def test_latex_escapes_every_character_it_would_read(text: str) -> None:
    words = re.compile("|".join(re.escape(word) for word in sorted(LATEX_WORDS, key=len, reverse=True)))
    escaped = escape_latex(text)
    assert not re.search(r"[\\{}$&#_%~^<>|\"]", words.sub("", escaped))
    back = words.sub(lambda found: LATEX_WORDS[found[0]], escaped)
    assert back == one_line(text).replace("–", "--")


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_csv_gives_every_value_back(texts: list[str]) -> None:
    rows = list(csv.reader(io.StringIO(table(*texts).csv(), newline="")))
    assert rows == [["name", "x_1"], *([text, "1.5"] for text in texts)]


def test_a_markup_of_a_page_is_shown_and_not_read() -> None:
    assert "\\<script\\>" in table("<script>").markdown()
    assert "additive_biased" in table("additive_biased").markdown()  # as one would type it


def test_a_latex_table_line_by_line() -> None:
    found = replace(table("a_b", "50 %"), notes=["Not\nfinished"])
    assert found.latex().splitlines() == [
        r"% Not finished",
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"name & x\_1 \\",
        r"\midrule",
        r"a\_b & a\_b \\",
        r"50 \% & 50 \% \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_scores_are_means_with_their_intervals() -> None:
    found = tables.scores_table(study({"dot": [0.98, 1.0, 0.99], "none": [0.5]}, "test/exact_match"))
    assert [column.name for column in found.columns] == ["variant", "seeds", "exact match [%]"]
    assert [[cell.text for cell in row] for row in found.rows] == [
        ["dot", "3", "99.0 ± 2.5"],  # 4.303 · 1 / √3
        ["none", "1", "50.0"],
    ]
    assert found.rows[0][2].value == pytest.approx(99)
    assert found.csv().splitlines()[0] == "variant,seeds,exact match [%],exact match [%] ±"
    assert found.csv().splitlines()[2] == "none,1,50.0,"


def test_costs_have_units_and_gaps() -> None:
    runs = [
        RunRecord(
            directory=Path(str(seed)),
            study="s",
            variant="dot",
            seed=seed,
            status="finished",
            scores={"test/bleu": 1.0},
            parameters=1_234_567,
            seconds=90.0,
            seconds_per_step=0.025,
            peak_memory=3 * 2**20,
        )
        for seed in (0, 1)
    ]
    found = tables.costs_table(replace(study({}), runs=runs))
    assert [cell.text for cell in found.rows[0]] == ["dot", "1,234,567", "1.5", "25.0", "3", "–"]


def test_unfinished_runs_stand_below_every_table_and_in_the_results() -> None:
    found = study({"dot": [1.0, 2.0], "none": [1.0, 0.0]})
    failed = replace(found.runs[0], seed=2, status="failed", error="CUDA out of memory", scores={})
    found = replace(found, runs=[*found.runs, failed])
    for built in tables.build(found, compare(found)):
        assert "dot seed 2 (failed: CUDA out of memory)" in built.markdown()
        assert "dot seed 2 (failed: CUDA out of memory)" in built.latex()
    rows = list(csv.DictReader(io.StringIO(tables.results_csv(found))))
    assert [(row["variant"], row["seed"], row["status"], row["test/bleu"], row["error"]) for row in rows] == [
        ("dot", "0", "finished", "1.0", ""),
        ("dot", "1", "finished", "2.0", ""),
        ("none", "0", "finished", "1.0", ""),
        ("none", "1", "finished", "0.0", ""),
        ("dot", "2", "failed", "", "CUDA out of memory"),
    ]


def test_comparisons_say_what_they_rest_on() -> None:
    found = study({"additive": [0.11, 0.22, 0.33], "none": [0.10, 0.20, 0.30]}, "test/exact_match")
    built = tables.comparisons_table(compare(found), found)
    (row,) = [[cell.text for cell in row] for row in built.rows]
    assert row[:5] == ["additive", "none", "exact match [%]", "seeds", "3"]
    assert row[5:] == ["–", "2.0", "-0.5", "4.5", "2.00", "0.074", "0.074"]
    assert "p (Holm) is corrected over all comparisons of a kind: 1 over seeds." in built.notes
