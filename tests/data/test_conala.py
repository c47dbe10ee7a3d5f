import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from attnlab.data.conala import TEST_MEMBER, TRAIN_MEMBER, load
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
