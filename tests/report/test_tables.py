"""Tables and their conversion to CSV, Markdown and LaTeX."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from attnlab.files.table_file import escape_formula
from attnlab.report.collect import collect
from attnlab.report.comparison import compare
from attnlab.report.record import RunRecord
from attnlab.report.statistics import estimate
from attnlab.report.study_tables import (
    build_tables,
    comparisons_table,
    costs_table,
    scores_table,
    write_tables,
)
from attnlab.report.tables import Table, escape_latex, mean_and_range
from run_files import study, with_data, write_run

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
    r"$\tau$": "τ",
    **{f"\\{character}": character for character in "{}$&#_%"},
}


def one_line(text: str) -> str:
    return " ".join(text.split())


def table(*texts: str) -> Table:
    names = pd.Index(texts, name="name")
    values = pd.DataFrame({"x_1": [1.5] * len(texts)}, index=names)
    return Table("t", "T", pd.DataFrame({"x_1": texts}, index=names), values)


def rows_of(table: Table) -> list[list[str]]:
    """Return the texts of the rows, their labels first."""
    return table.text.reset_index().to_numpy().tolist()


def headings_of(table: Table) -> list[str]:
    return [*table.text.index.names, *table.text.columns]


def in_html(markdown: str) -> list[str]:
    """Return the texts of the cells as a Markdown parser reads them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [
        "".join(child.content for child in token.children or [] if child.type == "text")
        for token in tokens
        if token.type == "inline"
    ]


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_markdown_shows_every_text_literally(texts: list[str]) -> None:
    shown = in_html(table(*texts).markdown())
    assert shown == ["name", "x_1", *(one_line(text) for text in texts for _ in range(2))]


@given(TEXTS)
def test_latex_escapes_every_special_character(text: str) -> None:
    pattern = re.compile("|".join(re.escape(word) for word in sorted(LATEX_WORDS, key=len, reverse=True)))
    escaped = escape_latex(text)
    assert not re.search(r"[\\{}$&#_%~^<>|\"]", pattern.sub("", escaped))
    restored = pattern.sub(lambda match: LATEX_WORDS[match[0]], escaped)
    assert restored == one_line(text).replace("–", "--")


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_csv_round_trip(texts: list[str]) -> None:
    rows = list(csv.reader(io.StringIO(table(*texts).csv(), newline="")))
    assert rows == [["name", "x_1"], *([escape_formula(text), "1.5"] for text in texts)]


@pytest.mark.parametrize("text", ["=1+1", "+a", "-a", "@a", "\t=a", "'=a"])
def test_csv_cells_are_no_formulas(text: str) -> None:
    assert [*map(escape_formula, [text, -1.5, "a=b", "'a"])] == [f"'{text}", -1.5, "a=b", "'a"]


def test_range_is_shown_if_its_ends_differ() -> None:
    assert mean_and_range([95.13, 97.0, 98.62], digits=1) == "96.9 (95.1–98.6)"
    assert mean_and_range([97.01, 97.04], digits=1) == "97.0"


def test_latex_table() -> None:
    result = replace(table("a_b", "50 %"), notes=["Not\nfinished"])
    assert result.latex().splitlines() == [
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


def test_best_means_are_bold_in_latex_and_columns_are_chosen() -> None:
    result = study({"dot": [0.25, 0.75], "none": [0.5], "mean": [0.125]}, "test/exact_match")
    runs = [replace(run, scores=run.scores | {"test/wer": 100 - run.seed}) for run in result.runs]
    both = scores_table(replace(result, runs=runs, selected_metrics=("test/exact_match", "test/wer")))
    lines = both.latex(["exact match [%]", "WER [%]"]).splitlines()
    rows = [line.split(" & ") for line in lines if " & " in line]
    assert rows[0] == ["variant", r"exact match [\%]", r"WER [\%] \\"]
    by_variant = {row[0]: (row[1].partition(" [")[0], row[2].partition(" [")[0]) for row in rows[1:]}
    assert by_variant == {  # two equal means are both the best; the lowest WER
        "dot": (r"\textbf{50.0}", r"\textbf{99.5}"),
        "none": (r"\textbf{50.0}", r"100.0 \\"),
        "mean": ("12.5", r"100.0 \\"),
    }
    assert r"\textbf" not in scores_table(study({"dot": [0.25, 0.75]})).latex()


def test_scores_are_means_with_intervals() -> None:
    result = scores_table(study({"dot": [0.98, 1.0, 0.99], "none": [0.5]}, "test/exact_match"))
    assert headings_of(result) == ["variant", "seeds", "exact match [%]"]
    assert rows_of(result) == [
        ["dot", "3", "99.0 [89.0, 99.9]"],  # logit(0.99) ± 4.303 · 0.01 / √3 / (0.99 · 0.01)
        ["none", "1", "50.0"],
    ]
    assert result.values["exact match [%]"].iloc[0] == pytest.approx(99)
    head, _, none = result.csv().splitlines()
    assert head == "variant,seeds,exact match [%],exact match [%] low,exact match [%] high"
    assert none == "none,1,50.0,,"


def test_costs_are_converted_and_missing_values_are_dashes() -> None:
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
    result = costs_table(replace(study({}), runs=runs))
    assert rows_of(result) == [["dot", "1,234,567", "1.5", "25.0", "3", "–"]]
    assert result.text.index.names == ["variant"]


def test_missing_scores_are_counted() -> None:
    result = scores_table(study({"dot": [1.0, float("nan"), 3.0], "none": [float("nan")]}))
    dot, none = result.text["BLEU"]
    assert dot.startswith("2.0 [")
    assert dot.endswith("] (2 of 3)")
    assert none == "–"


def test_chosen_columns_are_those_of_the_scores_only(tmp_path: Path) -> None:
    result = study({"dot": [1.0, 2.0], "none": [1.0, 0.0]})
    write_tables(build_tables(result, compare(result)), result, tmp_path, ["seeds"])
    header = {
        name: next(
            line for line in (tmp_path / "tables" / f"{name}.tex").read_text().splitlines() if "&" in line
        )
        for name in ("scores", "comparisons")
    }
    assert header["scores"] == r"variant & seeds \\"
    assert header["comparisons"].count("&") > 5


def test_unfinished_runs_are_counted_in_the_files_and_listed_in_the_results(tmp_path: Path) -> None:
    result = study({"dot": [1.0, 2.0], "none": [1.0, 0.0]})
    failed = replace(result.runs[0], seed=2, status="failed", error="CUDA out of memory", scores={})
    waiting = [replace(failed, seed=seed, status="not started", error=None) for seed in (3, 4)]
    result = replace(result, runs=[*result.runs, failed, *waiting])
    built = build_tables(result, compare(result))
    write_tables(built, result, tmp_path)
    for name in ("scores", "costs", "comparisons"):
        note = "Not included: 3 unfinished runs (1 failed, 2 not started)."
        assert note in (tmp_path / "tables" / f"{name}.tex").read_text()
    # The page lists them once
    assert not any("unfinished" in note for table in built for note in table.notes)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "results.csv").read_text())))
    assert [
        (row["seed"], row["status"], row["test/bleu"], row["error"])
        for row in rows
        if row["variant"] == "dot"
    ] == [
        ("0", "finished", "1.0", ""),
        ("1", "finished", "2.0", ""),
        ("2", "failed", "", "CUDA out of memory"),
        ("3", "not started", "", ""),
        ("4", "not started", "", ""),
    ]


def test_interval_over_sentences_is_beside_the_one_over_seeds(tmp_path: Path) -> None:
    for seed, right in ((0, 30), (1, 34)):
        sentences = [(f"s{n}", "x", "x" if n < right else "y") for n in range(40)]
        write_run(tmp_path, "dot", seed, scores={"test/exact_match": right / 40}, sentences=sentences)
    write_run(tmp_path, "none", scores={"test/exact_match": 0.0})  # its outputs were not stored
    table = scores_table(collect([tmp_path]))
    name = "exact match [%] over inputs"
    assert headings_of(table)[2:] == ["exact match [%]", name]
    (mean, low, high), none = table.values[[name, f"{name} low", f"{name} high"]].to_numpy()
    assert [*none] == [None, None, None]
    assert mean == pytest.approx(80)  # 64 of 80
    assert [*table.text[name]] == [f"[{low:.1f}, {high:.1f}]", ""]
    # 30 sentences are right twice, 4 once: standard deviation 0.372 per sentence, 0.059 of their mean
    assert (low, high) == pytest.approx((80 - 1.96 * 5.9, 80 + 1.96 * 5.9), abs=2)


def test_comparisons_table() -> None:
    result = study({"additive": [0.11, 0.22, 0.33], "none": [0.10, 0.20, 0.30]}, "test/exact_match")
    built = comparisons_table(compare(result), result)
    (row,) = rows_of(built)
    assert row[:5] == ["additive", "none", "exact match [%]", "seeds", "3"]
    assert row[5:] == ["–", "2.0", "-0.5", "4.5", "2.00", "0.074", "0.074"]
    assert "p (Holm) is corrected for all 1 tests of this report." in built.notes


def test_languages_have_a_macro_average(tmp_path: Path) -> None:
    """Of seeds 0 and 1, whose means over the languages are 35 and 50; `encoder` distinguishes the groups."""
    for encoder, offset in (("a", 0), ("b", 1)):
        for variant, scores in {"ady": (20, 40), "gre": (50, 60)}.items():
            for seed, score in enumerate(scores):
                run = write_run(
                    tmp_path,
                    f"{variant}-{encoder}",
                    seed,
                    scores={"val/wer": score + offset},
                    data={"train": f"{variant}.tsv"},
                    lang=variant,
                    attention_size={"a": 5, "b": 6}[encoder],
                )
                with_data(run, val=variant)
    found = replace(collect([tmp_path]), selected_metrics=("val/wer",))
    table, *_ = build_tables(found, [])
    assert [*table.text.index[:4]] == [
        *(("lang=ady", "ady-a"), ("lang=ady", "ady-b"), ("lang=gre", "gre-a"), ("lang=gre", "gre-b"))
    ]
    assert list(table.text["seeds"]) == ["2"] * 4 + [""] * 2
    mean = "WER (val) [%]"
    assert dict(table.values[mean].iloc[4:]) == {
        ("all", "macro average of 2 data sets · a"): 42.5,
        ("all", "macro average of 2 data sets · b"): 43.5,
    }
    interval = [float(table.values[f"{mean} {end}"].iloc[4]) for end in ("low", "high")]
    seeds = estimate([35, 50], (0, 100))
    assert interval == [seeds.low, seeds.high]


def test_macro_average_of_one_seed_has_an_interval_over_the_data(tmp_path: Path) -> None:
    for lang, score in {"ady": 20.0, "gre": 30.0, "hun": 70.0}.items():
        with_data(write_run(tmp_path, lang, scores={"test/wer": score}, lang=lang), test=lang)
    (table,) = (table for table in build_tables(collect([tmp_path]), []) if table.name == "scores")
    mean = estimate([20, 30, 70], (0, 100))
    assert table.values["WER [%]"].iloc[-1] == 40
    assert table.values["WER [%] low"].iloc[-1] == mean.low
    assert table.text.index[-1] == ("all", "macro average of 3 data sets")


def test_variants_with_the_same_data_have_no_macro_average() -> None:
    table = scores_table(study({"additive": [1, 2], "dot": [3, 4]}))
    assert list(table.text.index) == ["dot", "additive"]
