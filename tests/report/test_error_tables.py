"""Tables of the errors of words, worked out by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnlab.files.predictions import Prediction, write_predictions
from attnlab.files.run_directory import Run
from attnlab.metrics.errors import Errors
from attnlab.report.collect import collect, load_predictions
from attnlab.report.errors import error_figures, error_tables, errors_of_words, write_errors
from attnlab.report.explorer import gather_sentences
from attnlab.report.figures import draw_figures, styles_of
from attnlab.report.files import save
from run_files import with_result, write_run

CHARACTERS = {"_target_": "attnlab.data.tokenization.train.characters"}
PHONES = {"_target_": "attnlab.data.tokenization.train.whitespace"}


def write_words(folder: Path, variant: str, seed: int, outputs: list[str], **settings: Any) -> Run:
    """Write a run of three words with features, and the weights of the first."""
    sources, references = ["ab ⟨N⟩ ⟨PL⟩", "cd ⟨N⟩", "e ⟨V⟩"], ["p q", "r s", "t"]
    sentences = list(zip(sources, references, outputs, strict=True))
    run = write_run(folder, variant, seed, scores={"test/exact_match": 0.5}, sentences=sentences, **settings)
    output = Prediction(
        index=0,
        source=sources[0],
        references=(references[0],),
        hypothesis=outputs[0],
        source_tokens=["a", "b"],
        tokens=[*outputs[0].split(), "<eos>"],
        weights=np.array([[0, 1]] + [[1, 0]] * len(outputs[0].split())),
    )
    write_predictions(run.attention, [output], weights="pack")
    return run


def test_errors_of_all_seeds_of_a_variant_with_aligned_source_tokens(tmp_path: Path) -> None:
    settings = {"tokenizer": CHARACTERS, "target_tokenizer": PHONES}
    write_words(tmp_path, "dot", 0, ["x q", "r", "t"], **settings)
    run = write_words(tmp_path, "dot", 1, ["x q", "r s", "t u"], **settings)
    with_result(run, seen={"test": [1]})
    write_words(tmp_path, "right", 0, ["p q", "r s", "t"], **settings)
    study = collect([tmp_path])
    confusions, wrong, groups = error_tables(errors_of_words(study))
    assert confusions.text.reset_index().values.tolist() == [
        ["dot", "p", "x", "b 2", "ab N;PL", "2"],
        ["dot", "s", "∅", "", "cd N", "1"],
        ["dot", "∅", "u", "", "e V", "1"],
    ]
    assert sorted(wrong.text.index.get_level_values("edits")) == ["p > x", "p > x", "s > ∅", "∅ > u"]
    assert set(wrong.text["confidence"]) == {"–"}  # predictions without a probability
    assert groups.text.reset_index().values.tolist() == [
        ["dot", "source", "known", "1", "1.000"],
        ["dot", "source", "unknown", "2", "0.000"],
        ["dot", "feature", "N", "4", "0.250"],
        ["dot", "feature", "V", "2", "0.500"],
        ["dot", "feature", "PL", "2", "0.000"],
        ["right", "feature", "N", "2", "1.000"],
        ["right", "feature", "V", "1", "1.000"],
        ["right", "feature", "PL", "1", "1.000"],
    ]
    write_errors(errors_of_words(study), tmp_path / "errors")
    assert {path.stem for path in (tmp_path / "errors").iterdir()} == {*Errors._fields}
    written = pd.read_csv(tmp_path / "errors" / "confusions.csv", keep_default_na=False)
    assert written[["variant", "expected", "output", "count"]].values.tolist() == [
        ["dot", "p", "x", 2],
        ["dot", "s", "", 1],
        ["dot", "", "u", 1],
    ]
    rows = pd.read_csv(tmp_path / "errors" / "groups.csv").query(
        "variant == 'dot' and kind in ['cell', 'length']"
    )
    assert rows[["kind", "value", "inputs", "right"]].values.tolist() == [
        ["cell", "N", 2, 1],
        ["cell", "V", 2, 1],
        ["cell", "N;PL", 2, 0],
        ["length", "1", 2, 1],
        ["length", "2", 4, 1],
    ]
    edits, shares = error_figures(errors_of_words(study), styles_of(study))
    assert [text.get_text() for text in edits.figure.axes[0].get_yticklabels()] == ["p > x", "s > ∅", "∅ > u"]
    assert [*edits.figure.axes[0].lines[0].get_xdata()] == pytest.approx([200 / 6, 100 / 6, 100 / 6])
    assert [text.get_text() for text in shares.figure.axes[0].get_yticklabels()] == [
        *("feature N", "feature PL", "feature V", "source unknown", "source known"),
    ]
    dot, right = ([*line.get_xdata()] for line in shares.figure.axes[0].lines)
    np.testing.assert_array_equal(dot, [25, 0, 50, 0, 100])
    np.testing.assert_array_equal(right, [100, 100, 100, np.nan, np.nan])
    assert "errors-confusions" in {table.name for table in (confusions, wrong, groups)}
    (sentence,) = gather_sentences(study)[1]
    assert sentence.confusions == ["p > x", "p > x (dot)"]


@pytest.mark.parametrize(
    "tokenizers",
    [
        {"tokenizer": PHONES},
        {"tokenizer": CHARACTERS, "target_tokenizer": {**CHARACTERS, "graphemes": True}},
        {},
    ],
)
def test_only_words_have_tables_of_errors(tmp_path: Path, tokenizers: dict[str, Any]) -> None:
    write_words(tmp_path, "dot", 0, ["x q", "r", "t"], **tokenizers)
    study = collect([tmp_path])
    assert error_tables(errors_of_words(study)) == []
    assert [sentence.confusions for sentence in gather_sentences(study)[1]] == [[]]


def test_a_token_that_looks_like_a_missing_one_is_drawn(tmp_path: Path) -> None:
    settings = {"tokenizer": CHARACTERS, "target_tokenizer": PHONES}
    write_words(tmp_path, "dot", 0, ["∅ q", "r s", "t"], **settings)
    write_words(tmp_path, "dot", 1, ["q", "r s", "t"], **settings)
    study = collect([tmp_path])
    edits, _ = error_figures(errors_of_words(study), styles_of(study))
    assert [text.get_text() for text in edits.figure.axes[0].get_yticklabels()] == ["p > ∅"]
    assert [*edits.figure.axes[0].lines[0].get_xdata()] == pytest.approx([200 / 6])


def test_equal_outputs_keep_the_confidence_of_their_own_seed(tmp_path: Path) -> None:
    settings = {"tokenizer": CHARACTERS, "target_tokenizer": PHONES}
    for seed, confidence in enumerate((0.9, 0.1)):
        run = write_words(tmp_path, "dot", seed, ["x q", "r s", "t"], **settings)
        for path in (run.attention, run.predictions / "test.jsonl"):
            stored = [replace(each, p_beam=confidence, log_p=-1.0) for each in load_predictions(path)]
            write_predictions(path, stored, weights="pack")
    wrong = errors_of_words(collect([tmp_path]))["dot"].wrong
    assert wrong["confidence"].tolist() == [0.9, 0.1]


def test_texts_of_the_files_do_not_run_as_formulas(tmp_path: Path) -> None:
    settings = {"tokenizer": CHARACTERS, "target_tokenizer": PHONES}
    write_words(tmp_path, "dot", 0, ["=1+1", "r s", "t"], **settings)
    write_errors(errors_of_words(collect([tmp_path])), tmp_path / "errors")
    assert pd.read_csv(tmp_path / "errors" / "wrong.csv")["output"].tolist() == ["'=1+1"]


def test_edits_in_any_script_are_drawn(tmp_path: Path) -> None:
    settings = {"tokenizer": CHARACTERS, "target_tokenizer": PHONES}
    write_words(tmp_path, "नमस्ते", 0, ["कि q", "r \U0003fffd", "t"], **settings)
    study = collect([tmp_path])
    figures = [
        *error_figures(errors_of_words(study), styles_of(study)),
        *draw_figures(study, styles_of(study)),
    ]
    for each in figures:
        save(each.figure, tmp_path / f"{each.name}.svg")  # a glyph that is missing would be a warning
    labels = [text.get_text() for text in figures[0].figure.axes[0].get_yticklabels()]
    assert sorted(labels) == ["p > कि", "s > U+3FFFD"]
