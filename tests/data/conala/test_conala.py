import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from attnlab.data.conala.dataset import TEST_MEMBER, TRAIN_MEMBER, Preparation, load_conala, normalise
from attnlab.data.conala.placeholders import RestorePlaceholders, unused_in
from attnlab.data.conala.python_code import cut
from attnlab.data.conala.tokenizer import python
from attnlab.data.corpus import Corpus, Pair
from attnlab.errors import UserError


def item(number: int, **changes) -> dict:
    return {
        "intent": f"how to {number}",
        "rewritten_intent": f"do `{number}`",
        "snippet": f"f({number})",
        "question_id": number // 2,
    } | changes


ITEMS = [item(number) for number in range(20)]
"""Two examples of each of ten questions."""


def distinct(count: int) -> list[dict]:
    """Return examples whose intents have no word in common."""
    return [item(n, intent=f"i{n} j{n}", rewritten_intent=f"r{n} s{n}") for n in range(count)]


def load_file(path: str, **settings) -> Corpus:
    defaults = {"val_fraction": 0.2, "near_duplicates": None, "keep_unrewritten": False, "preparation": None}
    return load_conala(path=path, cache="nowhere", **{**defaults, **settings})


def train_and_val(corpus: Corpus) -> set[Pair]:
    return set(corpus.train + corpus.val)


def test_source_is_the_rewritten_intent_and_target_the_snippet(write):
    snippet = "for x in y:\n    print(x)  # ü"
    corpus = load_file(write([*ITEMS, item(99, snippet=snippet)]))
    assert train_and_val(corpus) == {Pair(f"do `{n}`", f"f({n})") for n in range(20)} | {
        Pair("do `99`", snippet)
    }
    assert corpus.test == []
    assert corpus.metrics == ("conala_bleu", "parses")


def questions(pairs: Iterable[Pair]) -> set[int]:
    return {int(pair.target[2:-1]) // 2 for pair in pairs}


@pytest.mark.parametrize("group_by_question", [True, False])
def test_examples_of_a_question_are_in_one_split_if_grouped(write, group_by_question: bool):
    divided = 0
    for seed in range(5):
        corpus = load_file(write(ITEMS), seed=seed, group_by_question=group_by_question)
        assert (len(corpus.train), len(corpus.val)) == (16, 4)
        divided += len(questions(corpus.train) & questions(corpus.val))
    assert (divided == 0) == group_by_question


def test_held_out_examples_are_the_same_for_every_configuration(write):
    different = distinct(20)
    path = write([*different[:-1], different[-1] | {"rewritten_intent": None}])
    plain = load_file(path)
    settings = ({}, {"seed": 3}, {"keep_unrewritten": True}, {"near_duplicates": 0.9}, {"max_tokens": 4})
    held_out = set()
    for changes in settings:
        corpus = load_file(path, held_out_fraction=0.2, score_held_out=True, **changes)
        (name,) = corpus.test_splits
        assert name == "test/held_out"
        held_out.add(tuple(corpus.splits[name]))
        assert not {*corpus.splits[name]} & train_and_val(corpus)
        assert not questions(corpus.splits[name]) & questions(train_and_val(corpus))
    assert len(held_out) == 1
    assert len(next(iter(held_out))) == 4
    excluded = load_file(path, held_out_fraction=0.2)
    assert excluded.test == []
    assert len(train_and_val(excluded)) == len(train_and_val(plain)) - sum(
        pair in train_and_val(plain) for pair in next(iter(held_out))
    )


@pytest.mark.parametrize("fraction", [0.1, 0.3])
def test_default_development_split_is_not_held_out(write, fraction: float):
    path = write(distinct(40))
    default = load_file(path, val_fraction=0.1, seed=0)
    held_out = load_file(path, held_out_fraction=fraction, score_held_out=True).splits["test/held_out"]
    assert len(default.val) == 4
    assert len(held_out) == round(40 * fraction)
    assert not {*held_out} & {*default.val}


def test_held_out_and_official_test_sets_are_named(write):
    test = write([item(100)], "test.json")
    corpus = load_file(write(distinct(20)), test=test, held_out_fraction=0.2, score_held_out=True)
    assert corpus.test_splits == ("test/official", "test/held_out")
    with pytest.raises(UserError, match=r"score_held_out=true needs data.held_out_fraction above 0"):
        load_file(write(ITEMS), score_held_out=True)


@pytest.mark.parametrize("missing", [None, ""])
def test_examples_without_a_rewritten_intent_are_dropped_or_use_the_intent(write, missing: str | None):
    path = write([*ITEMS, item(50, rewritten_intent=missing)])
    assert len(train_and_val(load_file(path))) == 20
    assert Pair("how to 50", "f(50)") in train_and_val(load_file(path, keep_unrewritten=True))


def test_max_tokens_drops_long_examples(write):
    short, long = "a b c\n\n     d", "a b c d e"
    path = write([*ITEMS, item(50, snippet=short), item(51, snippet=long), item(52, rewritten_intent=long)])
    kept = train_and_val(load_file(path, max_tokens=4))
    assert {pair.target for pair in kept} >= {short, "f(0)"}
    assert len(kept) == 21
    assert len(train_and_val(load_file(path, max_tokens=5))) == 23
    assert len(train_and_val(load_file(path, max_tokens=None))) == 23


def test_the_test_file_is_read_completely_and_in_order(write):
    tests = write([item(60, rewritten_intent=None), item(61, snippet="x " * 99)], "test.json")
    corpus = load_file(write(ITEMS), test=tests)
    assert corpus.test == [Pair("how to 60", "f(60)"), Pair("do `61`", "x " * 99)]


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        ("How to sort  a List?", "how to sort a list"),
        (" Import CSV into a DataFrame `Df  X` . ", "import CSV into a DataFrame `Df  X`"),
        ("split at ‘ A ’, then “B.”", "split at ' A ', then \"B.\""),
        ("What's up", "what's up"),
        ("I", "i"),
        ("?!", "?!"),
    ],
)
def test_normalise_intent(intent: str, expected: str):
    assert normalise(intent) == expected
    assert normalise(expected) == expected


def test_pairs_with_placeholders_restore_the_texts_and_keep_the_raw_reference(write):
    snippet = "print( names, 'age' )"
    example = item(50, rewritten_intent="Print `names` and 'age'.", snippet=snippet)
    path = write([*ITEMS, example])
    corpus = load_file(path, preparation=Preparation(slots=True))
    (pair,) = [pair for pair in corpus.train + corpus.val if pair.reference == snippet]
    assert pair == Pair(
        "print var_0 and str_0",
        "print(var_0, 'str_0')",
        reference=snippet,
        annotations={"quoted": ["names", "age"]},
        postprocess=RestorePlaceholders((("var_0", "names"), ("str_0", "age"))),
        excludes=unused_in("print var_0 and str_0"),
    )
    assert corpus.metrics == ("conala_bleu", "conala_exact_match", "parses", "slot_accuracy")
    plain = load_file(path, preparation=Preparation(normalise=False))
    expected = Pair(
        "Print `names` and 'age'.", snippet, reference=snippet, annotations={"quoted": ["names", "age"]}
    )
    assert expected in plain.train + plain.val
    tests = load_file(write(ITEMS), test=write([example], "test.json"), preparation=Preparation(slots=True))
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
"""For each noun three intents that differ only in what they quote, and one with the same original intent."""


@pytest.mark.parametrize("seed", range(5))
def test_near_duplicates_are_in_one_split(write, seed: int):
    corpus = load_file(write(NEAR), seed=seed, near_duplicates=0.8)
    nouns = [
        {pair.source.split()[pair.source.startswith("sort")] for pair in part}
        for part in (corpus.train, corpus.val)
    ]
    assert nouns[0] | nouns[1] == set(NOUNS)
    assert not nouns[0] & nouns[1]
    assert (len(corpus.train), len(corpus.val)) == (32, 8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.json: the file is empty"),
        (json.dumps(ITEMS, indent=1)[:300], r"train.json: invalid JSON .*line \d+"),
        ("7", "train.json: expected a JSON list"),
        ([*ITEMS, 7], "train.json, item 21: expected an object"),
        ([{"intent": "x", "snippet": "y"}], "item 1: missing fields: rewritten_intent, question_id"),
        ([item(1), item(2, snippet=" ")], "item 2: snippet must be non-empty text"),
        ([item(1, intent=None)], "item 1: intent must be non-empty text"),
        ([item(1, rewritten_intent=["x"])], "item 1: rewritten_intent must be non-empty text"),
        ([item(1, snippet="\ud83d")], "item 1: snippet must be non-empty text"),
        ([item(1, question_id=None)], "item 1: question_id must be a number or text"),
        ([], "train.json: all 0 examples were dropped"),
        ([item(1, rewritten_intent=None)], "all 1 examples were dropped. Set data.keep_unrewritten=true"),
        ([item(1)], "training split is empty"),
    ],
)
def test_errors_name_the_file_and_the_item(write, content: object, message: str):
    with pytest.raises(UserError, match=message):
        load_file(write(content, "train.json"))


def test_errors_name_missing_files(write):
    with pytest.raises(UserError, match=r"data\.path: none\.json does not exist"):
        load_file("none.json")
    with pytest.raises(UserError, match=r"data\.test: none\.json does not exist"):
        load_file(write(ITEMS), test="none.json")


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


def final_text(decoded: str, pair: Pair) -> str:
    return decoded if pair.postprocess is None else pair.postprocess(decoded)


@pytest.mark.parametrize("slots", [False, True])
def test_unusual_snippets_are_restored_exactly(write, slots: bool):
    items = [item(100 + n, rewritten_intent="set `x` to `y`", snippet=text) for n, text in enumerate(HOSTILE)]
    corpus = load_file(write([*ITEMS, *items]), max_tokens=None, preparation=Preparation(slots=slots))
    pairs = {pair.reference: pair for pair in corpus.train + corpus.val}
    tokenizer = python([pair.target for pair in pairs.values()], max_size=None)
    for text in HOSTILE[:-2]:
        decoded = tokenizer.decode(tokenizer.encode(pairs[text].target))
        assert cut(final_text(decoded, pairs[text])) == cut(text)
    assert final_text(pairs[HOSTILE[-1]].target, pairs[HOSTILE[-1]]) == HOSTILE[-1]


TRAIN = json.dumps(ITEMS)
MD5 = hashlib.md5(TRAIN.encode()).hexdigest()


@pytest.fixture
def archive(served: tuple[Path, str], tmp_path: Path) -> Callable[..., partial[Corpus]]:
    """Serve an archive with the corpus; return a function that downloads and loads it."""
    folder, address = served

    def serve(*, test_member: str = TEST_MEMBER, size: int | None = None) -> partial[Corpus]:
        path = folder / "conala.zip"
        with zipfile.ZipFile(path, "w") as opened:
            opened.writestr(TRAIN_MEMBER, TRAIN)
            opened.writestr(test_member, json.dumps([item(77)]))
        path.write_bytes(path.read_bytes()[:size])
        settings = {"cache": str(tmp_path / "cache"), "url": f"{address}/conala.zip"}
        return partial(load_conala, near_duplicates=None, preparation=None, **settings)

    return serve


def test_archive_provides_training_and_test_examples(archive, tmp_path: Path):
    corpus = archive()(train_md5=MD5)
    assert len(train_and_val(corpus)) == 20
    assert corpus.test == [Pair("do `77`", "f(77)")]
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".zip"]


def test_test_file_replaces_the_test_file_of_the_archive(archive, write):
    load = archive(test_member="elsewhere.json")
    assert load(train_md5=MD5, test=write([item(88)], "test.json")).test == [Pair("do `88`", "f(88)")]
    with pytest.raises(UserError, match=r"conala-test.json\): cannot be read from the archive"):
        load(train_md5=MD5)


def test_archive_with_a_wrong_checksum_is_rejected(archive):
    with pytest.raises(UserError, match=f"MD5 is {MD5}, expected 3c339ac6a45566f70a2a74db1ef3cc3a. Delete"):
        archive()()


def test_truncated_archive_is_rejected(archive):
    with pytest.raises(UserError, match=r"conala.zip \(conala-corpus/conala-train.json\): cannot be read"):
        archive(size=200)(train_md5=MD5)


def mined(number: int, probability: object, **changes: object) -> str:
    item = {"parent_answer_post_id": 7, "prob": probability, "snippet": f"f({number})", "id": f"7_7_{number}"}
    return json.dumps({**item, "intent": f"call f with {number}", "question_id": number, **changes})


def test_mined_examples_are_json_lines(tmp_path: Path):
    path = tmp_path / "mined.jsonl"
    path.write_text("\n".join([*(mined(n, n / 10) for n in range(10)), "", mined(10, 1)]) + "\n")
    for threshold, kept in ((0.0, {*range(11)}), (0.8, {8, 9, 10})):
        pairs = train_and_val(load_file(path, keep_unrewritten=True, min_probability=threshold))
        assert {pair.target for pair in pairs} == {f"f({number})" for number in kept}
        assert {pair.origin.line for pair in pairs if pair.target == "f(10)"} == {12}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (mined(1, 0.5)[:-9], "line 2: invalid JSON"),
        (mined(1, "high"), "line 2: prob must be a number"),
        (mined(1, 0.5, snippet=" "), "line 2: snippet must be non-empty text"),
        ("[]", "line 2: expected an object"),
    ],
)
def test_invalid_lines_of_mined_examples_are_named(tmp_path: Path, line: str, message: str):
    path = tmp_path / "mined.jsonl"
    path.write_text(f"{mined(0, 0.1)}\n{line}\n")
    with pytest.raises(UserError, match=message):
        load_file(path)


def test_examples_that_are_left_out_are_counted(write, caplog):
    path = write([*distinct(18), item(98, rewritten_intent=None), item(99, snippet="f ( a , b )")])
    with caplog.at_level("INFO"):
        load_file(path, max_tokens=4)
        corpus = load_file(path, keep_unrewritten=True, held_out_fraction=0.25)
    held_out = 20 - len(train_and_val(corpus))
    assert held_out > 0
    settings = "data.keep_unrewritten, data.max_tokens and data.min_probability"
    assert caplog.messages == [
        f"2 of the 20 examples are left out by {settings}",
        f"{held_out} further examples are held out (data.held_out_fraction)",
    ]
