"""Lexicons, and source symbols outside the vocabulary."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import attnlab
from attnlab.api.words import fill_unknown, read_lexicon, without_unknown
from attnlab.cli.main import run as run_command
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.train import characters, whitespace
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from exports import write_checkpoint

TARGETS = whitespace(["a b c"])
FILLED = Prediction(
    index=0,
    source="x q y",
    hypothesis="a b b c new b",
    tokens=["a", "b", "b", "c", "new", "b", "<eos>"],
    source_tokens=["x", "<unk:q>", "y"],
    weights=np.eye(3)[[0, 1, 1, 2, 0, 1, 1]],
)

PAIR = Pair("x q y", "")


def test_unknown_symbols_are_copied_or_marked_where_the_output_attends_to_them() -> None:
    assert fill_unknown(FILLED, PAIR, TARGETS).hypothesis == "a q c new q"
    assert fill_unknown(FILLED, PAIR, TARGETS, "?").hypothesis == "a ? c new ?"
    restored = Pair("x q y", "", postprocess=str.title)
    assert fill_unknown(FILLED, restored, TARGETS).hypothesis == "A Q C New Q"
    known = replace(FILLED, source_tokens=["x", "q", "y"])
    assert fill_unknown(known, PAIR, TARGETS) is known
    spaces = replace(FILLED, tokens=["a", "␣", "␣", "c", "␣", "b", "<eos>"], weights=FILLED.weights[::-1])
    assert fill_unknown(spaces, PAIR, characters(["a b c"])).hypothesis == "q cq"
    with pytest.raises(UserError, match="need attention weights"):
        fill_unknown(replace(FILLED, weights=None), PAIR, TARGETS)


def test_unknown_symbols_are_left_out() -> None:
    tokenizer = characters(["ab c"])
    assert without_unknown(Pair("qaq b", "x"), tokenizer) == Pair("a b", "x")
    assert without_unknown(pair := Pair("ab", ""), tokenizer) is pair
    with pytest.raises(UserError, match="leaves nothing"):
        without_unknown(Pair("qq", ""), tokenizer)


def test_known_words_have_their_most_frequent_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = write_checkpoint(tmp_path, "tokenizer.lowercase=true")
    lexicon = tmp_path / "train.tsv"
    lexicon.write_text("horse\tone\nHorse\ttwo\nhorse\ttwo\nyak\tfirst\nyak\tsecond\n")
    model = attnlab.load(checkpoint)
    assert read_lexicon(model, str(lexicon)) == {"horse": ("two", 2 / 3), "yak": ("first", 0.5)}
    (tmp_path / "in.txt").write_text("HORSE\n<!-- ]]> horse\nyak\n")

    warnings = ""

    def predict(*options: str) -> list[str]:
        nonlocal warnings
        with (tmp_path / "in.txt").open() as stream:
            monkeypatch.setattr("sys.stdin", stream)
            assert run_command(["predict", str(checkpoint), *options]) == 0
        output, warnings = capsys.readouterr()
        return output.splitlines()

    expected = model.translate("<!-- ]]> horse")[0]
    assert predict("--lexicon", str(lexicon)) == ["two", expected.hypothesis, "first"]
    assert warnings.splitlines()[-1] == f"attnlab: 2 of 3 inputs have their output from {lexicon}"
    rows = [row.split("\t") for row in predict("--lexicon", str(lexicon), "--nbest", "1")]
    assert rows[1] == ["1", "1", "HORSE", "two", "", "", "0.6667", ""]
    assert rows[2][3:5] == [expected.hypothesis, f"{expected.log_p:.4f}"]
    (tmp_path / "in.txt").write_text("horse ?\nhorse\n?\n")
    lexicon.write_text("horse ?\tone\nhorse\ttwo\n?\tthree\n")
    assert predict("--lexicon", str(lexicon), "--unknown", "skip") == ["one", "two", "three"]
    (tmp_path / "in.txt").write_text("horse ? yak\tyak\nhorse yak\tyak\n")
    one, other = predict("--prefix", "--unknown", "skip")
    assert one == other
    assert "left out" in warnings
