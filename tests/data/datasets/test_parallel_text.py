from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.batching import encode
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.parallel_text import load
from attnlab.data.tokenization.training import whitespace
from attnlab.data.tokenization.vocabularies import train_vocabularies
from attnlab.errors import UserError

ROWS = [f"source {i}\tZiel {i}" for i in range(10)]


@pytest.fixture
def write(tmp_path: Path):
    def write(content: str | bytes, name: str = "pairs.tsv") -> str:
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    return write


def everything(corpus: Corpus) -> list[Pair]:
    return sorted(corpus.train + corpus.val + corpus.test)


EXPECTED = [Pair(f"source {i}", f"Ziel {i}") for i in range(10)]


@pytest.mark.parametrize(
    "content",
    [
        "\n".join(ROWS),
        "\n".join(ROWS) + "\n",
        "\r\n".join(ROWS) + "\r\n",
        "\n\n".join(ROWS) + "\n \n\t\n",
        "\ufeff" + "\n".join(ROWS),
        "1\t2\n" + "\n".join(ROWS),
        "\ufeff1\t2\r\n" + "\r\n".join(ROWS),
        "\n".join(row + "\tCC-BY 2.0 (France) Attribution: tatoeba.org #1" for row in ROWS),
    ],
    ids=["plain", "ended", "crlf", "empty lines", "bom", "header", "bom, header, crlf", "third column"],
)
def test_every_form_of_the_table_gives_the_same_pairs(write, content: str):
    corpus = load(path=write(content))
    assert everything(corpus) == EXPECTED
    assert (len(corpus.train), len(corpus.val), len(corpus.test)) == (8, 1, 1)


def test_a_line_of_any_length_is_read_and_may_be_cut_later(write):
    long = " ".join(["word"] * 10_000)
    path = write("\n".join([f"{long}\t{long}", *ROWS]))
    pairs = everything(load(path=path))
    assert Pair(long, long) in pairs
    vocabularies = train_vocabularies(pairs, source=partial(whitespace, max_size=None))
    examples = encode(pairs, vocabularies, source_eos=True, max_source_length=50, max_target_length=40)
    assert (max(examples.source_lengths), max(examples.target_lengths)) == (50, 40)


def test_a_header_is_recognised_by_numbers_alone_or_by_order(write):
    named = write("English\tGerman\n" + "\n".join(ROWS), "named.tsv")
    assert Pair("English", "German") in everything(load(path=named))
    assert everything(load(path=named, header=True)) == EXPECTED
    numbered = write("1\t2\n3\t4\n" + "\n".join(ROWS), "numbered.tsv")
    assert everything(load(path=numbered)) == sorted([*EXPECTED, Pair("3", "4")])
    assert len(everything(load(path=numbered, header=False))) == 12


def test_columns_are_chosen(write):
    path = write("\n".join(f"{i}\tZiel {i}\tsource {i}" for i in range(10)))
    assert everything(load(path=path, source_column=2, target_column=1)) == EXPECTED


def test_limit_reads_only_the_first_pairs(write):
    path = write("1\t2\n\n" + "\n".join(ROWS) + "\nbroken")
    assert everything(load(path=path, limit=5)) == EXPECTED[:5]


def test_quotation_marks_and_unusual_line_separators_are_text(write):
    rows = ['"Hi\tHallo', 'He said "no"\tEr\u2028sagte „nein“', "a\tb"]
    assert Pair('"Hi', "Hallo") in everything(load(path=write("\n".join(rows))))
    assert Pair('He said "no"', "Er\u2028sagte „nein“") in everything(load(path=write("\n".join(rows))))


def test_aligned_files_give_the_same_pairs_as_a_table(write):
    sources = write("\n".join(f"source {i}" for i in range(10)) + "\n\n", "text.en")
    targets = write("\r\n".join(f"Ziel {i}" for i in range(10)) + "\r\n\r\n", "text.de")
    corpus = load(source_path=sources, target_path=targets)
    assert everything(corpus) == EXPECTED
    assert corpus == load(path=write("\n".join(ROWS)))


def test_the_first_pair_of_aligned_files_is_never_a_header(write):
    sources, targets = write("1\n2\n3\n", "a"), write("2\n3\n4\n", "b")
    assert Pair("1", "2") in everything(load(source_path=sources, target_path=targets))


variants = st.sampled_from(
    ["go", "Go!", " GO.", "run", "Run?", "„run“", "wait 5", "Wait:  $5", "+", "-", "é", "É!"]
)


@given(st.lists(variants, min_size=8, max_size=40), st.integers(0, 20))
def test_no_source_leaks_into_another_split(tmp_path_factory, chosen: list[str], seed: int):
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    rows = [f"{source}\t{i}" for i, source in enumerate([*chosen, "one", "two", "three", "four", "five"])]
    path.write_text("\n".join(rows), encoding="utf-8")
    corpus = load(path=str(path), val_fraction=0.2, test_fraction=0.2, seed=seed)
    key = {
        "go": "go", "Go!": "go", " GO.": "go", "run": "run", "Run?": "run", "„run“": "run",
        "wait 5": "wait", "Wait:  $5": "wait", "é": "é", "É!": "é",
    }  # fmt: skip
    train, val, test = (
        {key.get(pair.source, pair.source) for pair in part}
        for part in (corpus.train, corpus.val, corpus.test)
    )
    assert not train & val
    assert not train & test
    assert not val & test
    assert len(everything(corpus)) == len(rows)


def test_sources_of_nothing_but_symbols_are_told_apart(write):
    corpus = load(path=write("\n".join(f"{source}\t{i}" for i, source in enumerate("+-=?!😀😁😂"))))
    assert (len(corpus.train), len(corpus.val), len(corpus.test)) == (6, 1, 1)


def test_the_seed_decides_the_splits(write):
    path = write("\n".join(ROWS))
    assert load(path=path, seed=1) == load(path=path, seed=1)
    assert any(load(path=path, seed=1).val != load(path=path, seed=seed).val for seed in range(2, 6))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "pairs.tsv: the file is empty"),
        ("a\tb\n\nc\n", "pairs.tsv, line 3: 1 of the 2 columns"),
        ("a\tb\r\n\r\nc\r\n", "pairs.tsv, line 3: 1 of the 2 columns"),
        ("a\tb\nc\t \n", "pairs.tsv, line 2: the target is empty"),
        ("a\tb\n\tc\n", "pairs.tsv, line 2: the source is empty"),
        (b"a\tb\nc\0\td\n", "pairs.tsv, line 2: a NUL byte"),
        (b"a\tb\nc\t\xe9\n", "pairs.tsv, line 2: not UTF-8"),
        ("1\t2\n", "pairs.tsv: there is no pair in it"),
        ("\ufeff", "pairs.tsv: there is no pair in it"),
        ("a\tb\n", "training split is empty"),
        ("a\tb\na\tc\na\td\n", "validation split is empty"),
    ],
)
def test_broken_tables_are_named(write, content: str | bytes, message: str):
    with pytest.raises(UserError, match=message):
        load(path=write(content))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "set data.path=FILE"),
        ({"source_path": "a"}, "data.source_path=FILE and data.target_path=FILE"),
        ({"path": "a", "target_path": "b"}, "set data.path=FILE"),
        ({"path": "none.tsv"}, "none.tsv: there is no such file"),
        ({"path": "a", "source_column": -1}, "data.source_column=-1"),
        ({"path": "a", "source_column": 1}, "data.source_column=1 and data.target_column=1"),
        ({"path": "a", "limit": 0}, "data.limit=0"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings: dict, message: str):
    with pytest.raises(UserError, match=message):
        load(**settings)


def test_aligned_files_must_be_aligned(write):
    three, two, holed = write("a\nb\nc\n", "3"), write("a\nb\n", "2"), write("a\n\nc\n", "hole")
    with pytest.raises(UserError, match=rf"{three} has 3 lines, but {two} has 2"):
        load(source_path=three, target_path=two)
    with pytest.raises(UserError, match="line 2: the target is empty"):
        load(source_path=three, target_path=holed)


LINKS = ["", "0-0 1-1", "10-0 0-10"] + [f"{i}-{2 * i}" for i in range(3, 10)]
FOUND = [(), ((0, 0), (1, 1)), ((10, 0), (0, 10))] + [((i, 2 * i),) for i in range(3, 10)]
ALIGNED = [pair._replace(alignment=links) for pair, links in zip(EXPECTED, FOUND, strict=True)]


def test_alignments_stand_beside_their_pairs(write):
    links = write("\n".join(LINKS) + "\n", "links")
    assert everything(load(path=write("\n".join(ROWS)), alignments_path=links)) == ALIGNED
    sources = write("\n".join(f"source {i}" for i in range(10)), "text.en")
    targets = write("\n".join(f"Ziel {i}" for i in range(10)), "text.de")
    assert everything(load(source_path=sources, target_path=targets, alignments_path=links)) == ALIGNED
    assert everything(load(path=write("\n".join(ROWS)), alignments_path=links, limit=5)) == ALIGNED[:5]


def test_alignments_go_by_the_line_where_a_table_has_more_than_pairs(write):
    table = write("1\t2\n\n" + "\n".join(ROWS))
    links = write("\r\n".join(["a header", "", *LINKS]), "links")
    assert everything(load(path=table, alignments_path=links)) == ALIGNED


@pytest.mark.parametrize("link", ["0:1", "0-", "-1-0", "0-1-2", "0p1", "²-0", "0–1"])
def test_what_is_no_link_is_named(write, link: str):
    links = write("\n".join([*LINKS[:4], f"0-0 {link}", *LINKS[5:]]), "links")
    with pytest.raises(UserError, match=f"links, line 5: '{link}' is no link: write"):
        load(path=write("\n".join(ROWS)), alignments_path=links)


def test_alignments_that_do_not_fit_are_named(write):
    table = write("\n".join(ROWS))
    with pytest.raises(UserError, match=r"pairs.tsv has 10 lines, but .*links has 9: line i"):
        load(path=table, alignments_path=write("\n".join(LINKS[:9]), "links"))
    with pytest.raises(UserError, match="nowhere: there is no such file"):
        load(path=table, alignments_path="nowhere")
