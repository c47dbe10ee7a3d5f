import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.conala import TEST_MEMBER, TRAIN_MEMBER, Preparation, load, normalise
from attnlab.data.datasets.placeholders import put_back
from attnlab.data.tokenization.python_code import cut
from attnlab.data.tokenization.training import python
from attnlab.errors import UserError


def item(number: int, **changes) -> dict:
    return {
        "intent": f"how to {number}",
        "rewritten_intent": f"do `{number}`",
        "snippet": f"f({number})",
        "question_id": number // 2,
    } | changes


ITEMS = [item(number) for number in range(20)]
"""Two of each of ten questions."""


@pytest.fixture
def write(tmp_path: Path):
    def write(content: object, name: str = "train.json") -> str:
        file = tmp_path / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(file)

    return write


def read(path: str, **settings) -> Corpus:
    return load(path=path, cache="nowhere", **settings)


def everything(corpus: Corpus) -> set[Pair]:
    return set(corpus.train + corpus.val)


def test_the_rewritten_intent_is_the_source_and_the_snippet_the_target(write):
    snippet = "for x in y:\n    print(x)  # ü"
    corpus = read(write([*ITEMS, item(99, snippet=snippet)]))
    assert everything(corpus) == {Pair(f"do `{n}`", f"f({n})") for n in range(20)} | {
        Pair("do `99`", snippet)
    }
    assert corpus.test == []
    assert corpus.scores == ("conala_bleu", "parses")


def test_a_question_lands_in_one_split(write):
    for seed in range(5):
        corpus = read(write(ITEMS), seed=seed)
        assert (len(corpus.train), len(corpus.val)) == (16, 4)
        questions = [{int(p.target[2:-1]) // 2 for p in part} for part in (corpus.train, corpus.val)]
        assert not questions[0] & questions[1]


def test_the_published_split_is_by_example(write):
    split_questions = 0
    for seed in range(5):
        corpus = read(write(ITEMS), seed=seed, group_by_question=False)
        assert (len(corpus.train), len(corpus.val)) == (16, 4)
        questions = [{int(p.target[2:-1]) // 2 for p in part} for part in (corpus.train, corpus.val)]
        split_questions += len(questions[0] & questions[1])
    assert split_questions > 0


@pytest.mark.parametrize("missing", [None, ""])
def test_examples_nobody_rewrote_are_dropped_or_fall_back(write, missing: str | None):
    path = write([*ITEMS, item(50, rewritten_intent=missing)])
    assert len(everything(read(path))) == 20
    assert Pair("how to 50", "f(50)") in everything(read(path, keep_unrewritten=True))


def test_long_examples_are_dropped_counting_between_runs_of_white_space(write):
    path = write(
        [
            *ITEMS,
            item(50, snippet="a b c\n\n     d"),
            item(51, snippet="a b c d e"),
            item(52, rewritten_intent="a b c d e"),
        ]
    )
    assert {pair.target for pair in everything(read(path, max_tokens=4))} >= {"a b c\n\n     d", "f(0)"}
    assert len(everything(read(path, max_tokens=4))) == 21
    assert len(everything(read(path, max_tokens=5))) == 23
    assert len(everything(read(path, max_tokens=None))) == 23


def test_the_test_file_is_read_whole_and_in_order(write):
    tests = write([item(60, rewritten_intent=None), item(61, snippet="x " * 99)], "test.json")
    corpus = read(write(ITEMS), test_path=tests)
    assert corpus.test == [Pair("how to 60", "f(60)"), Pair("do `61`", "x " * 99)]


@pytest.mark.parametrize(
    ("intent", "written"),
    [
        ("How to sort  a List?", "how to sort a list"),
        (" Import CSV into a DataFrame `Df  X` . ", "import CSV into a DataFrame `Df  X`"),
        ("split at ‘ A ’, then “B.”", "split at ' A ', then \"B.\""),
        ("What's up", "what's up"),
        ("I", "i"),
        ("?!", "?!"),
    ],
)
def test_intents_are_brought_to_one_way_of_writing(intent: str, written: str):
    assert normalise(intent) == written
    assert normalise(written) == written


def test_a_pair_with_slots_can_be_put_back_and_is_scored_raw(write):
    snippet = "print( names, 'age' )"
    example = item(50, rewritten_intent="Print `names` and 'age'.", snippet=snippet)
    path = write([*ITEMS, example])
    corpus = read(path, preparation=Preparation(slots=True))
    (pair,) = {pair for pair in everything(corpus) if pair.reference == snippet}
    assert pair == Pair(
        "print var_0 and str_0",
        "print(var_0, 'str_0')",
        reference=snippet,
        slots=(("var_0", "names"), ("str_0", "age")),
        quoted=("names", "age"),
    )
    assert corpus.scores == ("conala_bleu", "conala_exact_match", "parses", "slot_accuracy")
    plain = read(path, preparation=Preparation(normalise=False))
    expected = Pair("Print `names` and 'age'.", snippet, reference=snippet, quoted=("names", "age"))
    assert expected in everything(plain)
    tests = read(write(ITEMS), test_path=write([example], "test.json"), preparation=Preparation(slots=True))
    assert tests.test == [pair]


NOUNS = ["list", "dict", "set", "frame", "tuple", "file", "string", "date", "socket", "thread"]
NEAR = [
    item(
        10 * n + k,
        question_id=10 * n + k,
        intent=f"how do i sort a {noun} by key",
        rewritten_intent=f"sort {noun} `x{k}` by key '{k}' in order" if k < 4 else f"{noun} {n * k} {k}",
        snippet=f"{noun}.sort(key={k})" if k < 4 else f"{noun}_{k}({n})",
    )
    for n, noun in enumerate(NOUNS)
    for k in (1, 2, 3, 4)
]
"""Of each noun three intents that are the same but for what they quote, and one with the same question."""


@pytest.mark.parametrize("seed", range(5))
def test_near_duplicates_land_in_one_split(write, seed: int):
    corpus = read(write(NEAR), seed=seed, near_duplicates=0.8)
    nouns = [
        {pair.source.split()[pair.source.startswith("sort")] for pair in part}
        for part in (corpus.train, corpus.val)
    ]
    assert nouns[0] | nouns[1] == set(NOUNS)
    assert not nouns[0] & nouns[1]
    assert (len(corpus.train), len(corpus.val)) == (32, 8)


def test_without_it_they_do_not(write):
    corpus = read(write(NEAR))
    nouns = [
        {pair.target.split(".")[0].split("_")[0] for pair in part} for part in (corpus.train, corpus.val)
    ]
    assert nouns[0] & nouns[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.json: the file is empty"),
        (json.dumps(ITEMS, indent=1)[:300], r"train.json, line \d+: not valid JSON"),
        ({"intent": "x"}, "train.json: not a JSON list"),
        ([*ITEMS, 7], "train.json, item 21: not an object"),
        ([{"intent": "x", "snippet": "y"}], "item 1: lacks rewritten_intent, question_id"),
        ([item(1), item(2, snippet=" ")], "item 2: snippet is not a text"),
        ([item(1, intent=None)], "item 1: intent is not a text"),
        ([item(1, rewritten_intent=["x"])], "item 1: rewritten_intent is not a text"),
        ([item(1, snippet="\ud83d")], "item 1: snippet is not a text"),
        ([item(1, question_id=None)], "item 1: question_id is neither"),
        ([], "train.json: none of its 0 examples is left"),
        ([item(1, rewritten_intent=None)], "none of its 1 examples is left .* data.keep_unrewritten=true"),
        ([item(1)], "training split is empty"),
    ],
)
def test_broken_files_are_named(write, content: object, message: str):
    with pytest.raises(UserError, match=message):
        read(write(content))


def test_files_and_settings_that_cannot_be_used_are_named(write):
    with pytest.raises(UserError, match=r"none\.json: there is no such file"):
        read("none.json")
    with pytest.raises(UserError, match=r"none\.json: there is no such file"):
        read(write(ITEMS), test_path="none.json")
    with pytest.raises(UserError, match=r"data\.max_tokens=0"):
        read(write(ITEMS), max_tokens=0)
    with pytest.raises(UserError, match=r"data\.near_duplicates=1\.5: a share above 0"):
        read(write(ITEMS), near_duplicates=1.5)


@pytest.mark.parametrize("form", ["crlf", "bom", "empty lines"])
def test_every_form_of_the_file_gives_the_same_pairs(tmp_path: Path, form: str):
    text = json.dumps(ITEMS, indent=1)
    content = {
        "crlf": text.replace("\n", "\r\n"),
        "bom": "\ufeff" + text,
        "empty lines": text.replace("\n", "\n\n"),
    }
    path = tmp_path / "train.json"
    path.write_bytes(content[form].encode())
    assert everything(read(str(path))) == {Pair(f"do `{n}`", f"f({n})") for n in range(20)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "train.json: the file is empty"),
        (b'[\n{"intent": "a\0"}]', "train.json, line 2: a NUL byte: save"),
        (b'[\n\n{"intent": "\xe9"}]', r"train.json, line 3: not UTF-8 \(byte 0xe9\): save"),
        (b'[\n{"intent": "a",', "train.json, line 2: not valid JSON .* cut short; fetch it again"),
        (b'[\n{"intent": "a\tb"}]', "train.json, line 2: not valid JSON"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "train.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(str(path))


HOSTILE = [
    "print 'old'",
    "if x\n\treturn",
    "a\0b",
    "x = '\r\n\u2028'",
    "\ufeffx = `y`",
    "(" * 300,
    "+".join(["x"] * 2000),
    "x = [" + ", ".join(["x"] * 2_000) + "]",
    "⇥ ⇤ ⁀",
    " <eos> <unk> str_0 ",
]


@pytest.mark.parametrize("slots", [False, True])
def test_snippets_that_are_odd_long_or_no_python_are_kept_as_they_are(write, slots: bool):
    items = [item(100 + n, rewritten_intent="set `x` to `y`", snippet=text) for n, text in enumerate(HOSTILE)]
    corpus = read(write([*ITEMS, *items]), max_tokens=None, preparation=Preparation(slots=slots))
    pairs = {pair.reference: pair for pair in everything(corpus)}
    tokenizer = python([pair.target for pair in pairs.values()], max_size=None)
    for text in HOSTILE[:-2]:
        decoded = tokenizer.decode(tokenizer.encode(pairs[text].target))
        assert cut(put_back(decoded, pairs[text].slots)) == cut(text)
    assert put_back(pairs[HOSTILE[-1]].target, pairs[HOSTILE[-1]].slots) == HOSTILE[-1]


def test_a_long_example_is_dropped_or_read_whole(write):
    path = write([*ITEMS, item(50, rewritten_intent="word " * 10_000)])
    assert len(everything(read(path))) == 20
    for preparation in (None, Preparation(slots=True)):
        pairs = everything(read(path, max_tokens=None, preparation=preparation))
        assert max(len(pair.source.split()) for pair in pairs) == 10_000


TRAIN = json.dumps(ITEMS)
MD5 = hashlib.md5(TRAIN.encode()).hexdigest()


def archive(folder: Path, *, test_member: str = TEST_MEMBER) -> Path:
    path = folder / "conala.zip"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr(TRAIN_MEMBER, TRAIN)
        opened.writestr(test_member, json.dumps([item(77)]))
    return path


def test_the_archive_gives_training_and_test(served: tuple[Path, str], tmp_path: Path):
    folder, address = served
    archive(folder)
    corpus = load(cache=str(tmp_path / "cache"), url=f"{address}/conala.zip", train_md5=MD5)
    assert len(everything(corpus)) == 20
    assert corpus.test == [Pair("do `77`", "f(77)")]
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".zip"]


def test_a_test_file_of_ones_own_replaces_the_archives(served: tuple[Path, str], tmp_path: Path, write):
    folder, address = served
    archive(folder, test_member="elsewhere.json")
    settings = {"cache": str(tmp_path / "cache"), "url": f"{address}/conala.zip", "train_md5": MD5}
    corpus = load(test_path=write([item(88)], "test.json"), **settings)
    assert corpus.test == [Pair("do `88`", "f(88)")]
    with pytest.raises(UserError, match=r"conala-test.json\): cannot be read from the archive"):
        load(**settings)


def test_an_archive_with_other_contents_is_refused(served: tuple[Path, str], tmp_path: Path):
    folder, address = served
    archive(folder)
    with pytest.raises(UserError, match=f"md5 is {MD5}, not 3c339ac6a45566f70a2a74db1ef3cc3a: delete"):
        load(cache=str(tmp_path / "cache"), url=f"{address}/conala.zip")


def test_an_archive_cut_short_is_refused(served: tuple[Path, str], tmp_path: Path):
    folder, address = served
    whole = archive(folder)
    whole.write_bytes(whole.read_bytes()[:200])
    with pytest.raises(UserError, match=r"conala.zip \(conala-corpus/conala-train.json\): cannot be read"):
        load(cache=str(tmp_path / "cache"), url=f"{address}/conala.zip", train_md5=MD5)
