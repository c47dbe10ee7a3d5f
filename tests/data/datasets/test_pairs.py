import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.pair_files import Layout
from attnlab.data.datasets.pairs import load_pairs as load
from attnlab.data.examples import encode
from attnlab.data.tokenization.train import whitespace
from attnlab.data.tokenization.vocabularies import train_vocabularies
from attnlab.errors import UserError

ROWS = [f"source {i}\tZiel {i}" for i in range(10)]


def all_pairs(corpus: Corpus) -> list[Pair]:
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
        "\r".join(ROWS) + "\r",
        "\n".join(row + "\tCC-BY 2.0 (France) Attribution: tatoeba.org #1" for row in ROWS),
    ],
    ids=["plain", "ended", "crlf", "empty lines", "bom", "cr", "third column"],
)
def test_line_endings_and_extra_columns_do_not_matter(write, content: str):
    corpus = load(path=write(content))
    assert all_pairs(corpus) == EXPECTED
    assert (len(corpus.train), len(corpus.val), len(corpus.test)) == (8, 1, 1)


def test_long_lines_are_read_and_truncated_when_encoded(write):
    long = " ".join(["word"] * 10_000)
    path = write("\n".join([f"{long}\t{long}", *ROWS]))
    pairs = all_pairs(load(path=path))
    assert Pair(long, long) in pairs
    vocabularies = train_vocabularies(pairs, source=partial(whitespace, max_size=None))
    examples = encode(pairs, vocabularies, source_eos=True, max_source_length=50, max_target_length=40)
    assert (max(examples.source_lengths), max(examples.target_lengths)) == (50, 40)


def test_header_is_skipped_only_if_the_setting_says_so(write, caplog):
    caplog.set_level("INFO")
    path = write("\ufeff" + "lemma\tform\r\n" + "\r\n".join(ROWS))
    assert all_pairs(load(path=path)) == sorted([*EXPECTED, Pair("lemma", "form")])
    assert "pairs.tsv, line 1 is read as the first pair: 'lemma', 'form'" in caplog.text
    caplog.clear()
    assert all_pairs(load(path=path, header=True)) == EXPECTED
    assert "line 1: 'lemma', 'form' is the header" in caplog.text


def test_lines_without_a_pair_are_left_out_and_counted(write, tmp_path, caplog):
    caplog.set_level("INFO")
    rows = ["", *ROWS[:3], "no target\t ", "\t", "one column", *ROWS[3:], "\tno source", "no target\t"]
    assert all_pairs(load(path=write("\n".join(rows)))) == EXPECTED
    assert [message.partition("pairs.tsv: ")[2] for message in caplog.messages[1:]] == [
        "skipped 2 empty lines (1, 6)",
        "left out 2 lines (5, 16): the target is empty",
        "left out 1 line (7): 1 column",
        "left out 1 line (15): the source is empty",
    ]
    corpus = load(path=write("\n".join(rows)))
    lines = {pair.source: pair.origin.line for pair in all_pairs(corpus)}
    assert lines == {f"source {i}": i + 2 if i < 3 else i + 5 for i in range(10)}
    assert str(corpus.val[0].origin) == f"{tmp_path}/pairs.tsv, line {lines[corpus.val[0].source]}"
    caplog.clear()
    write("\n".join("abcd efghijk"), "text.a")
    write("\n".join("ABCDEFGHIJKL"), "text.b")
    load(path=f"{tmp_path}/text", languages=["a", "b"])
    assert caplog.messages[-1].endswith("text.b: left out 1 line (5): the source is empty")


def test_columns_that_are_not_read_are_named(write, caplog):
    caplog.set_level("INFO")
    load(path=write("\n".join(f"{row}\tV;PST" for row in ROWS)))
    assert caplog.messages[-1].endswith("pairs.tsv, line 1: column 2 is not read ('V;PST')")


def test_rows_with_another_number_of_columns_are_counted_with_their_lines(write, caplog):
    rows = ["source\ttarget\ttags", *ROWS[:4], "1\t2\tV;PST", *ROWS[4:], "a\tb\tc\td", "alone"]
    load(path=write("\n".join(rows)), header=True)
    assert [message.partition("pairs.tsv: ")[2] for message in caplog.messages] == [
        "2 lines (6, 13): another number of columns than line 2, which has 2",
        "left out 1 line (14): 1 column",
    ]


def test_column_settings_select_the_texts(write):
    path = write("\n".join(f"{i}\tZiel {i}\tsource {i}" for i in range(10)))
    assert all_pairs(load(path=path, source_column=2, target_column=1)) == EXPECTED


def test_limit_reads_only_the_first_pairs(write):
    path = write("1\t2\n\n" + "\n".join(ROWS) + "\nbroken")
    assert all_pairs(load(path=path, limit=5, header=True)) == EXPECTED[:5]


def test_quotation_marks_and_unicode_line_separators_are_text(write):
    rows = ['"Hi\tHallo', 'He said "no"\tEr\u2028sagte „nein“', "a\tb"]
    pairs = all_pairs(load(path=write("\n".join(rows))))
    assert pairs[:2] == [Pair('"Hi', "Hallo"), Pair('He said "no"', "Er\u2028sagte „nein“")]


def test_aligned_files_equal_a_table_and_have_no_header(write, tmp_path):
    write("\n".join(["1", *(f"source {i}" for i in range(10))]) + "\n\n", "text.en")
    write("\r\n".join(["2", *(f"Ziel {i}" for i in range(10))]) + "\r\n\r\n", "text.de")
    corpus = load(path=f"{tmp_path}/text", languages=["en", "de"])
    assert all_pairs(corpus) == [Pair("1", "2"), *EXPECTED]
    assert corpus == load(path=write("\n".join(["1\t2", *ROWS])))


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
    parts = [{key.get(pair.source, pair.source) for pair in part} for part in corpus.splits.values()]
    assert len(set().union(*parts)) == sum(map(len, parts))
    assert len(all_pairs(corpus)) == len(rows)


def test_sources_of_symbols_only_are_distinct(write):
    corpus = load(path=write("\n".join(f"{source}\t{i}" for i, source in enumerate("+-=?!😀😁😂"))))
    assert (len(corpus.train), len(corpus.val), len(corpus.test)) == (6, 1, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Set data.path=FILE"),
        ({"path": "none.tsv"}, "data.path: none.tsv does not exist"),
        ({"path": "a", "source_column": -1}, "data.source_column=-1"),
        ({"path": "a", "source_column": 1}, "data.target_column=1 must be different"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict, message: str):
    with pytest.raises(UserError, match=message):
        load(**settings)


LINKS = ["", "0-0 1-1", "10-0 0-10"] + [f"{i}-{2 * i}" for i in range(3, 10)]
FOUND = [(), ((0, 0), (1, 1)), ((10, 0), (0, 10))] + [((i, 2 * i),) for i in range(3, 10)]
ALIGNED = [replace(pair, alignment=links) for pair, links in zip(EXPECTED, FOUND, strict=True)]


def test_alignments_belong_to_the_pair_of_their_line(write):
    links = write("\n".join(LINKS) + "\n", "links")
    assert all_pairs(load(path=write("\n".join(ROWS)), alignments_path=links)) == ALIGNED
    assert all_pairs(load(path=write("\n".join(ROWS)), alignments_path=links, limit=5)) == ALIGNED[:5]


def test_alignments_count_header_and_empty_lines(write):
    table = write("1\t2\n\n" + "\n".join(ROWS))
    links = write("\r\n".join(["a header", "", *LINKS]), "links")
    assert all_pairs(load(path=table, header=True, alignments_path=links)) == ALIGNED


def test_every_file_of_pairs_can_have_alignments(write):
    records = "".join(f'{{"source": "{pair.source}", "target": "{pair.target}"}}\n' for pair in EXPECTED)
    links = write("\n".join(LINKS), "links")
    corpus = load(
        train=write(records, "train.jsonl"),
        val=write("\n".join(ROWS), "val.tsv"),
        test={"first": write("\n".join(ROWS), "first.tsv"), "second": write("\n".join(ROWS), "second.tsv")},
        alignments_path={"train": links, "val": links, "test": {"second": links}},
    )
    assert (corpus.train, corpus.val) == (ALIGNED, ALIGNED)
    assert (corpus.splits["test/first"], corpus.splits["test/second"]) == (EXPECTED, ALIGNED)
    assert Path(links) in corpus.files


@pytest.mark.parametrize(
    ("alignments", "message"),
    [
        ({"val": "links"}, r"alignments_path\.val: there is no data\.val\. Give .* of train, test"),
        ({"dev": "links"}, r"alignments_path\.dev: there is no data\.dev"),
        ({"train": 5}, r"alignments_path\.train=5 must be the path of a file"),
        ({"train": {"a": "links"}}, r"alignments_path\.train=.* must be the path of a file"),
        ({"test": "links"}, r"by the names of the test sets, such as \{first: FILE\}"),
        ({"test": {"third": "links"}}, r"by the names of the test sets, such as \{first: FILE\}"),
        ({"test": {"first": "nowhere"}}, r"nowhere does not exist"),
    ],
)
def test_alignments_need_a_file_of_pairs(write, alignments: dict, message: str):
    table = write("\n".join(ROWS))
    with pytest.raises(UserError, match=message):
        load(train=table, test={"first": table}, alignments_path=alignments)


def test_further_references_are_pairs_with_the_same_source(write):
    """Of the second line, one file has no reference; an aligner's links are those of the first target."""
    first, second = write("A\n\nD\n", "a.txt"), write("X\nY\nD\n", "b.txt")
    layout, further = Layout(), {"setting": "data.test", "references": [first, second]}
    read = layout.read(write("a\tB\nb\tC\nd\tD\n"), alignments=write("0-0\n0-0\n0-0\n", "links"), **further)
    expected = [("a", "B"), ("a", "A"), ("a", "X"), ("b", "C"), ("b", "Y"), *[("d", "D")] * 3]
    assert [(pair.source, pair.target) for pair in read.pairs] == expected
    assert [pair.alignment for pair in read.pairs[:3]] == [((0, 0),), None, None]
    assert [pair.origin.line for pair in read.pairs] == [1, 1, 1, 2, 2, 3, 3, 3]
    assert [str(path) for path in read.files[1:3]] == [first, second]
    # A file without targets has only those of the other files
    covered = layout.read(write("a\nb\nd\n"), may_be_covered=True, **further)
    expected = [("a", "A"), ("a", "X"), ("b", "Y"), ("d", "D"), ("d", "D")]
    assert [(pair.source, pair.target) for pair in covered.pairs] == expected


def test_further_references_of_named_test_sets(write):
    train, a, b = write("x\ty\nz\ty\n", "train.tsv"), write("a\tA\n", "a.tsv"), write("X\n", "x.txt")
    given = {"train": train, "val": train, "test": {"one": a, "two": a}, "test_references": {"two": [b]}}
    tests = load(**given).splits
    assert [[pair.target for pair in tests[f"test/{name}"]] for name in ("one", "two")] == [["A"], ["A", "X"]]
    with pytest.raises(UserError, match=r"data.val_references=.*: give data.val"):
        load(train=train, test=a, val_references=[b])
    with pytest.raises(UserError, match=r"data.test_references=.* must be a list of files"):
        load(train=train, test=a, test_references=b)
    with pytest.raises(UserError, match=r"data.test_references={'x': .*names of the test sets"):
        load(**{**given, "test_references": {"x": [b]}})
    with pytest.raises(UserError, match=r"a.tsv has 1 lines, but .*train.tsv has 2"):
        load(**{**given, "test_references": {"two": [train]}})


def test_a_list_of_targets_in_json_lines_is_a_pair_for_each(write):
    lines = '{"source": "a", "target": ["A", "X"]}\n{"source": "b", "target": "B"}\n'
    pairs = Layout().read(write(lines, "pairs.jsonl"), setting="data.test").pairs
    assert [(pair.source, pair.target) for pair in pairs] == [("a", "A"), ("a", "X"), ("b", "B")]
    read = Layout().read(write(lines, "pairs.jsonl"), setting="data.train", limit=1).pairs
    assert [pair.target for pair in read] == ["A"]
    for target in ("[]", '["A", 3]', "[[]]"):
        with pytest.raises(UserError, match=r"line 1: 'target' is (list|int), not text"):
            Layout().read(write(f'{{"source": "a", "target": {target}}}', "x.jsonl"), setting="data.test")


COVERED = {
    "missing": (Layout(), "ab\ncd\n"),
    "empty": (Layout(), "ab\t\ncd\t\n"),
    "features": (Layout(features_column=1, target_column=2), "ab\tV;PST\ncd\tN\n"),
    "shifted features": (Layout(features_column=2, target_column=1), "ab\tV;PST\ncd\tN\n"),
    "two columns of features": (Layout(features_column=[1, 3], target_column=2), "ab\tV\tPST\ncd\tN\t\n"),
    "empty before features": (Layout(features_column=2, target_column=1), "ab\t\tV;PST\ncd\t\tN\n"),
}


@pytest.mark.parametrize("name", COVERED)
def test_covered_test_files_have_empty_targets(write, name: str):
    layout, text = COVERED[name]
    file = write(text)
    read = layout.read(file, setting="data.test", may_be_covered=True).pairs
    ends = (" ⟨V⟩ ⟨PST⟩", " ⟨N⟩") if layout.features_column else ("", "")
    assert [(pair.source, pair.target) for pair in read] == [("ab" + ends[0], ""), ("cd" + ends[1], "")]
    with pytest.raises(UserError, match="line 1"):
        layout.read(file, setting="data.val")


@pytest.mark.parametrize("name", ["features", "shifted features"])
def test_row_without_features_is_left_out_of_a_covered_file(write, caplog, name: str):
    layout, text = COVERED[name]
    read = layout.read(write(f"{text}ef\n"), setting="data.test", may_be_covered=True).pairs
    assert [pair.source for pair in read] == ["ab ⟨V⟩ ⟨PST⟩", "cd ⟨N⟩"]
    assert "left out 1 line (3): the features are missing" in caplog.text


def test_one_row_without_a_target_is_left_out_of_a_test_file(write):
    read = Layout().read(write("ab\tx\ncd\nef\ty\n"), setting="data.test", may_be_covered=True).pairs
    assert [(pair.source, pair.target) for pair in read] == [("ab", "x"), ("ef", "y")]


@pytest.mark.parametrize(
    ("layout", "line", "expected"),
    [
        (Layout(), "ab", "ab"),
        (Layout(), "ab\tx y", "ab"),
        (Layout(source_column=1, target_column=0), "x y\tab", "ab"),
        (Layout(features_column=1, target_column=2), "ab\tN\tabs", "ab\tN"),
        (Layout(features_column=2, target_column=1), "ab\tabs\tN", "ab\tN"),
        (Layout(features_column=2, target_column=1), "ab\tN", "ab\tN"),
        (Layout(features_column=2, target_column=1), "ab", "ab"),
        (Layout(features_column=[3, 1], target_column=2), "ab\tN\tabs\tPL", "ab\tPL;N"),
        (Layout(features_column=[1, 2], target_column=3), "ab\tN\tPL", "ab\tN;PL"),
        (Layout(features_column=[1, 2], target_column=3), "ab\tN;PL", "ab\tN;PL"),
    ],
)
def test_a_row_of_a_table_is_reduced_to_what_a_model_reads(layout: Layout, line: str, expected: str):
    assert layout.input_of(line) == expected


def test_lists_and_patterns_of_files_are_read_in_order(write, tmp_path, caplog):
    caplog.set_level("INFO")
    first = write("\n".join(ROWS[:4]), "b.tsv")
    second = write(gzip.compress("\n".join(ROWS[4:]).encode()), "a.tsv.gz")
    files = {"val": first, "test": first}
    assert load(train=[first, second], **files).train == EXPECTED
    corpus = load(train=f"{tmp_path}/[ab].tsv*", **files)
    assert corpus.train == EXPECTED[4:] + EXPECTED[:4]
    assert [str(pair.origin) for pair in corpus.train[5:7]] == [f"{second}, line 6", f"{first}, line 1"]
    assert corpus.files[:2] == (Path(second), Path(first))
    assert load(train=[first, second], limit=5, **files).train == EXPECTED[:5]
    with pytest.raises(UserError, match=r"^data\.train=.*/\*\.txt: no file matches the pattern"):
        load(train=f"{tmp_path}/*.txt", **files)
    with pytest.raises(UserError, match=r"data\.alignments_path needs one file, and data\.train has 2"):
        load(train=[first, second], alignments_path=first, **files)


def test_patterns_of_aligned_files_match_prefixes(write, tmp_path):
    for name, rows in (("two", ROWS[5:]), ("one", ROWS[:5])):
        for ending, side in (("de", 0), ("en", 1)):
            write("\n".join(row.split("\t")[side] for row in rows), f"{name}.{ending}")
    write("ignored", "one.fr")
    corpus = load(
        train=f"{tmp_path}/*", languages=["de", "en"], val=f"{tmp_path}/one", test=f"{tmp_path}/two"
    )
    assert corpus.train == EXPECTED


def test_a_prefix_of_aligned_files_may_have_brackets(write, tmp_path):
    for name in ("text[1]", "text1"):
        for ending, side in (("de", 0), ("en", 1)):
            write("\n".join(f"{name} {row.split(chr(9))[side]}" for row in ROWS), f"{name}.{ending}")
    corpus = load(path=f"{tmp_path}/text[1]", languages=["de", "en"])
    assert {pair.source.split()[0] for pair in all_pairs(corpus)} == {"text[1]"}


@pytest.mark.parametrize("name", ["text.jsonl", "text"])
def test_features_need_a_table(write, tmp_path, name):
    for ending in ("", ".de", ".en"):
        write('{"de": "a", "en": "b"}\n' * 10, name + ending)
    with pytest.raises(UserError, match=r"data\.features_column needs a table"):
        load(path=f"{tmp_path}/{name}", languages=["de", "en"], features_column=2)


def test_keys_that_are_not_read_are_named_once(write, caplog):
    rows = [f'{{"source": "a {number}", "note": "x", "target": "b"}}\n' for number in range(10)]
    path = write("".join(rows), "text.jsonl")
    with caplog.at_level("INFO"):
        load(path=str(path))
    assert [message for message in caplog.messages if "not read" in message] == [
        f"{path}, line 1: the key 'note' is not read"
    ]


def test_a_number_that_python_refuses_is_named_by_its_line(write):
    path = write('{"source": "a", "target": "b"}\n' * 9 + '{"source": ' + "1" * 5000 + "}", "text.jsonl")
    with pytest.raises(UserError, match=r"text\.jsonl, line 10: not valid JSON"):
        load(path=str(path))


def test_rows_of_a_covered_file_whose_features_come_first(tmp_path: Path) -> None:
    layout = Layout(features_column=0, source_column=1, target_column=2)
    (tmp_path / "test.tsv").write_text("N;PL\tdog\nV;PST\tgo\n")
    (first, _) = layout.read(str(tmp_path / "test.tsv"), setting="data.test", may_be_covered=True).pairs
    assert first.source == "dog ⟨N⟩ ⟨PL⟩"
    assert layout.input_of("dog\tN;PL") == "dog\tN;PL"  # as it is typed


def test_lines_of_a_covered_file_without_any_reference_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "test.txt").write_text("a\nb\nc\n")
    (tmp_path / "answers.txt").write_text("A\n\nC\n")
    references = [str(tmp_path / "answers.txt")]
    read = Layout().read(
        str(tmp_path / "test.txt"), setting="data.test", may_be_covered=True, references=references
    )
    assert [(pair.source, pair.target) for pair in read.pairs] == [("a", "A"), ("c", "C")]
    assert "left out 1 line (2): there is no reference" in caplog.text


def test_alignment_is_that_of_the_first_of_several_targets(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"source": "der Hund", "target": ["the dog", "", "dog the"]}\n')
    (tmp_path / "links").write_text("0-0 1-1\n")
    read = Layout().read(str(tmp_path / "a.jsonl"), setting="data.train", alignments=str(tmp_path / "links"))
    assert [(pair.target, pair.alignment) for pair in read.pairs] == [
        ("the dog", ((0, 0), (1, 1))),
        ("dog the", None),
    ]


def test_objects_without_a_text_are_left_out_and_keys_are_those_of_the_texts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rows = [{"source": "a", "target": "b", "translation": None}, {"source": "c", "target": None}]
    (tmp_path / "a.JSONL").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (pair,) = Layout().read(str(tmp_path / "a.JSONL"), setting="data.train").pairs
    assert (pair.source, pair.target) == ("a", "b")
    assert "left out 1 line (2): a text is null" in caplog.text
    assert "the key 'translation' is not read" in caplog.text


def test_patterns_leave_hidden_files_out_as_a_shell(tmp_path: Path) -> None:
    for name in ("a.tsv", ".b.tsv", ".old/c.tsv", "d.arrow", "cache-e.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\tb\n")
    assert Layout().expand(f"{tmp_path}/**/*.tsv", "data.train") == [f"{tmp_path}/a.tsv"]
    assert Layout().expand(f"{tmp_path}/.*.tsv", "data.train") == [f"{tmp_path}/.b.tsv"]
    assert Layout().expand(f"{tmp_path}/*.arrow", "data.train") == [f"{tmp_path}/d.arrow"]


def test_binary_columns_of_parquet_are_text(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    source = pyarrow.array([b"ein Hund", "é".encode()], pyarrow.binary())
    parquet.write_table(pyarrow.table({"source": source, "target": ["a dog", "e"]}), path)
    read = Layout().read(str(path), setting="data.train").pairs
    assert [pair.source for pair in read] == ["ein Hund", "é"]


def test_names_of_test_sets_are_different_texts(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match="each name once"):
        load(train=str(tmp_path / "a.tsv"), test={2016: "a.tsv", "2016": "b.tsv"})
