from collections.abc import Callable
from pathlib import Path

import pytest

from attnlab.data.corpus import Pair
from attnlab.data.datasets.pair_files import Layout
from attnlab.data.datasets.pairs import load_pairs
from attnlab.data.features import feature_ids, pair_with_features, split_features, with_features
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.train import characters, whitespace
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction

ROWS = [f"lemma {i}\tN;ABL(PL;PSS({i},PL))\tform {i}" for i in range(10)]


@pytest.mark.parametrize(
    ("features", "split"),
    [
        ("V;IND;1;PL;PST", ["V", "IND", "1", "PL", "PST"]),
        ("N;ABL(PL;PSS(2,PL))", ["N", "ABL", "(", "PL", "PSS", "(", "2", "PL", ")", ")"]),
        (" V ; IND ", ["V", "IND"]),
        ("", []),
    ],
)
def test_features_are_split_at_separators_and_brackets(features: str, split: list[str]) -> None:
    assert split_features(features) == split


@pytest.mark.parametrize(
    "features", ["V;IND", "N;ABL(PL;PSS(2;PL))", "(A)B", "A(B);C", "()", "A(B)(C;(D))", ""]
)
def test_columns_give_the_same_source(features: str) -> None:
    source = with_features("a b", features)
    columns = Prediction(index=0, source=source, hypothesis="").columns
    assert columns[0] == "a b"
    assert with_features(*columns, *[""] * (2 - len(columns))) == source


@pytest.mark.parametrize("features", ["N;ABL(PL", "N)", "a)(b"])
def test_brackets_without_a_counterpart_are_rejected(features: str) -> None:
    with pytest.raises(UserError, match="have a bracket without a counterpart"):
        split_features(features)


def test_third_column_is_not_read_as_features() -> None:
    assert pair_with_features("deve\tN;ACC\t") == Pair("deve ⟨N⟩ ⟨ACC⟩", "")
    assert pair_with_features("deve\t\tN;ACC") == Pair("deve ⟨N⟩ ⟨ACC⟩", "")
    with pytest.raises(UserError, match="has 3 columns: give TEXT<TAB>FEATURES"):
        pair_with_features("deve\tdevei\tN;ACC")


def test_tables_with_a_features_column(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tur.trn"
    path.write_text("\n".join([*ROWS, "lemma\tN;ABL(PL\tform", "lemma\tform"]))
    corpus = load_pairs(path=str(path), features_column=1, target_column=2)
    pairs = sorted(pair for split in corpus.splits.values() for pair in split)
    expected = "lemma {0} ⟨N⟩ ⟨ABL⟩ ⟨(⟩ ⟨PL⟩ ⟨PSS⟩ ⟨(⟩ ⟨{0}⟩ ⟨PL⟩ ⟨)⟩ ⟨)⟩"
    assert pairs == [Pair(expected.format(i), f"form {i}") for i in range(10)]
    assert pair_with_features("lemma 3\tN;ABL(PL;PSS(3,PL))") == Pair(expected.format(3), "")
    assert [message.partition("tur.trn: ")[2] for message in caplog.messages] == [
        "left out 1 line (11): a bracket of the features has no counterpart",
        "left out 1 line (12): 2 columns",
    ]
    with pytest.raises(UserError, match=r"data\.features_column=1 must be different"):
        load_pairs(path=str(path), features_column=1)


def test_several_columns_of_features_are_read_in_their_order(tmp_path: Path) -> None:
    rows = {"one": "ab\t{0}\tV;PST\tabs", "two": "ab\tV\tabs\tPST{0}"}
    columns = {"one": ([2, 1], 3), "two": ([1, 3], 2)}
    for name, row in rows.items():
        path = tmp_path / f"{name}.tsv"
        path.write_text(row.format("") + "\n" + row.format(";aa"))
        features, target = columns[name]
        layout = Layout(features_column=features, target_column=target)
        pairs = layout.read(str(path), setting="data.train").pairs
        assert [*pairs] == [Pair("ab ⟨V⟩ ⟨PST⟩", "abs"), Pair("ab ⟨V⟩ ⟨PST⟩ ⟨aa⟩", "abs")]
    for wrong in ([1, 1], [], [0, 2], [2, -1]):
        with pytest.raises(UserError, match=r"data\.features_column=\[.*\] must be different column numbers"):
            Layout(features_column=wrong)


@pytest.mark.parametrize("graphemes", [False, True])
def test_a_feature_is_one_token_of_characters(graphemes: bool) -> None:
    text = pair_with_features("a b\tN;PSS(2)").source
    tokenizer = characters([text], graphemes=graphemes)
    tokens = ["a", "␣", "b", " ⟨N⟩", " ⟨PSS⟩", " ⟨(⟩", " ⟨2⟩", " ⟨)⟩"]
    for copy in (tokenizer, Tokenizer.from_json(tokenizer.to_json())):
        assert copy.tokens(copy.encode(text)) == tokens
        assert copy.decode(copy.encode(text)) == text
    assert whitespace([text]).spell(text) == [token.strip() for token in tokens if token != "␣"]


@pytest.mark.parametrize("train", [characters, whitespace])
def test_features_of_a_vocabulary_are_found(train: Callable[[list[str]], Tokenizer]) -> None:
    text = pair_with_features("a ⟨b\tN;PSS(2)").source
    tokenizer = train([text])
    tokens = [token.strip() for token in tokenizer.tokens(feature_ids(tokenizer))]
    assert sorted(tokens) == ["⟨(⟩", "⟨)⟩", "⟨2⟩", "⟨N⟩", "⟨PSS⟩"]
