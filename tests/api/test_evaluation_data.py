"""`attnlab evaluate` on data that changed since the run was trained."""

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from attnlab.api.evaluation_data import check_unchanged, find_data, read, separate
from attnlab.data import digests
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.tokenization import train
from attnlab.data.tokenization.train import subwords as train_subwords
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UsageError, UserError
from attnlab.files.run_directory import prepare_run

WORDS = train.whitespace(["a b c"], max_size=None)
VOCABULARIES = Vocabularies(WORDS, WORDS)


def corpus_of(file: Path, *words: str) -> Corpus:
    file.write_text("\n".join(words))
    pairs = [Pair(word, word) for word in words]
    return Corpus(train=pairs, val=pairs, test=pairs, files=(file,))


def test_vocabularies_are_compared_with_the_training_data_only(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "pairs.tsv", "a", "b")
    recorded = digests.describe(corpus, VOCABULARIES)
    smaller = Vocabularies(WORDS, train.whitespace(["a b"], max_size=None))
    current = digests.describe(corpus, smaller)
    digests.check_unchanged(recorded, current, ("val", "test"), fix="")
    with pytest.raises(UserError, match="the vocabularies differ from those"):
        digests.check_unchanged(recorded, current, ("train", "val"), fix="")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "pairs.tsv changed since this run was started: the test data is different"),
        (["search.beam_size=4"], "pairs.tsv changed since this run was started: the test data is different"),
        (
            ["data.cache=elsewhere"],
            "pairs.tsv changed since this run was started: the test data is different",
        ),
        (["data.limit=9"], "pairs.tsv changed since this run was started. Restore the original data, or"),
        (["+data.seed=1", "seed=2"], "pairs.tsv changed since this run was started. Restore"),
        (["data.preparation.slots=true"], "pairs.tsv changed since this run was started. Restore"),
        (["data.test=pairs.tsv"], None),
        (["data.test={a:pairs.tsv}", "data.limit=9"], None),
        (["data.path=pairs.tsv"], None),
        (["data=synthetic"], None),
    ],
)
def test_only_settings_that_name_other_data_allow_changed_files(
    overrides: list[str], message: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "pairs.tsv"
    recorded = digests.describe(corpus_of(file, "a", "b"), VOCABULARIES)
    check_unchanged(overrides, recorded, corpus_of(file, "a", "b"), VOCABULARIES, ("test",))
    changed = corpus_of(file, "a", "c")
    if message is None:
        check_unchanged(overrides, recorded, changed, VOCABULARIES, ("test",))
        return
    with pytest.raises(UserError, match=message) as caught:
        check_unchanged(overrides, recorded, changed, VOCABULARIES, ("test",))
    assert "or evaluate on the changed data with data.test=FILE" in str(caught.value)


def test_other_settings_may_change_the_splits(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    corpus = corpus_of(file, "a", "b")
    recorded = digests.describe(corpus, VOCABULARIES)
    shorter = Corpus(train=corpus.train, val=corpus.val, test=corpus.val[:1], files=(file,))
    check_unchanged(["data.limit=1"], recorded, shorter, VOCABULARIES, ("test",))


def test_given_files_can_have_alignments(composed: Callable[..., DictConfig], tmp_path: Path) -> None:
    config = composed()
    (tmp_path / "links").write_text("0-0 1-1\n")
    (tmp_path / "test.tsv").write_text("a b\tb a\n")
    file, links = f"data.test={tmp_path}/test.tsv", f"data.alignments_path={tmp_path}/links"
    for override in (links, f"data.alignments_path={{test: {tmp_path}/links}}"):
        given, others = separate(config, [file, override, "search.beam_size=2"])
        assert others == ["search.beam_size=2"]
        corpus = read(config, given, VOCABULARIES, ())
        assert corpus.splits["test"][0].alignment == ((0, 0), (1, 1))
        subwords = train_subwords(["abab"], max_size=9)
        with pytest.raises(UserError, match="the tokenizer splits them"):
            read(config, given, Vocabularies(subwords, subwords), ())
    assert separate(config, [links]) == (({}, {}), [links])


def test_file_name_that_hydra_cannot_parse_is_a_usage_error(composed: Callable[..., DictConfig]) -> None:
    with pytest.raises(UsageError, match=r"data\.test=a\(b: cannot be parsed; quote a value"):
        separate(composed(), ["data.test=a(b"])


@pytest.mark.parametrize("is_moved", [False, True])
def test_data_of_a_run_is_found_from_another_folder(
    composed: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_moved: bool
) -> None:
    trained, here = tmp_path, tmp_path / "here"
    here.mkdir()
    for folder in (trained, here):
        (folder / "both.tsv").write_text("a\tb\n")
    for name in ("1.tsv", "2.tsv", "test.de", "test.en"):
        (trained / name).write_text("a\tb\n")
    monkeypatch.chdir(here)
    paths = ("data.train=[1.tsv,2.tsv]", "data.val=both.tsv", "data.test={a:test,b:missing.tsv,c:?.tsv}")
    config = composed("data=pairs", *paths)
    run = prepare_run(config)
    run.write_result("finished", metrics={"val/loss": 1.0}, folder="/gone" if is_moved else str(trained))
    found = find_data(config, run).data
    assert found.train == [f"{trained}/1.tsv", f"{trained}/2.tsv"]
    assert found.val == "both.tsv"
    assert found.test == {"a": f"{trained}/test", "b": "missing.tsv", "c": f"{trained}/?.tsv"}
    assert config.data.train == ["1.tsv", "2.tsv"]
