"""Corpora in mapped files: equal to those in memory, and safe against whatever happens to the cache."""

import errno
import importlib
import json
import linecache
import logging
import multiprocessing
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from attnlab.config.compose import compose_run
from attnlab.data import digests, examples, mapped
from attnlab.data.batch_sampler import TrainingBatchSampler
from attnlab.data.corpus import Corpus, Origin, Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.datasets.pairs import load_pairs
from attnlab.data.mapped import MappedPairs
from attnlab.data.tokenization import vocabularies
from attnlab.errors import UserError
from attnlab.training.build import build_corpus, build_vocabularies


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Map corpora of more than 20 pairs, in blocks of 16."""
    monkeypatch.setattr(mapped, "IN_MEMORY", 20)
    for module in (mapped, examples):
        monkeypatch.setattr(module, "BLOCK", 16)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables and aligned files with lines that are left out, equal sources and unknown words."""
    monkeypatch.chdir(tmp_path)
    generator = random.Random(3)

    def text(length: int, words: str) -> str:
        return " ".join(generator.choices(words, k=length))

    def rows(count: int, words: str) -> list[tuple[str, str]]:
        return [(text(1 + i % 7, words), text(1 + i % 5, words.upper())) for i in range(count)]

    train, val = rows(205, "aäbcdé"), rows(9, "abx")
    lines = ["\t".join(row) for row in train]
    lines[7:7] = ["", "no target", "e\u0301 a\tZ", "a\u200b\tB"]
    lines.append("c " * 80 + "\tC\tone more column")
    Path("train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("val.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in val), encoding="utf-8")
    Path("train.de").write_text("".join(f"{a}\n" for a, _ in train), encoding="utf-8")
    Path("train.en").write_text("".join(f"{b}\n" for _, b in train), encoding="utf-8")
    Path("links").write_text("0-0\n" * len(train), encoding="utf-8")
    records = [{"source": a, "target": b} for a, b in train]
    Path("train.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    table = pyarrow.Table.from_pylist(records)
    parquet.write_table(table, "train.parquet")
    with pyarrow.OSFile("train.arrow", "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, 50)
    datasets.Dataset.from_list(records).save_to_disk("saved")
    return tmp_path


def results(overrides: list[str], caplog: pytest.LogCaptureFixture) -> tuple[Corpus, list[Any]]:
    """Return the corpus of a configuration, and all that is computed from it."""
    caplog.clear()
    config = compose_run(["data=pairs", "batching.batch_size=8", *overrides])
    corpus = build_corpus(config)
    sides = build_vocabularies(config, corpus)
    copying = "readout=pointer_generator" in overrides
    data = Seq2SeqData(
        corpus, sides, batch_size=8, bucket_by_length=True, source_eos=True, with_copy_ids=copying
    )
    batches = [
        [None if part is None else part.tolist() for part in batch]
        for loader in (data.train_dataloader(), data.val_dataloader())
        for batch in loader
    ]
    splits = {name: [(pair, pair.origin) for pair in pairs] for name, pairs in corpus.splits.items()}
    described = digests.describe(corpus, sides)
    hashes = digests.source_hashes(corpus.train, sides.source)
    seen = digests.are_seen(corpus.val, hashes, sides.source).tolist()
    counts = digests.count_duplicates(corpus.train), seen
    return corpus, [splits, described, hashes.tolist(), counts, batches, sorted(caplog.messages)]


VALIDATION = "data.val=val.tsv", "data.test_fraction=0"
NO_SPLITS = "data.val_split=null", "data.test_split=null"
SETTINGS = [
    ["data.train=train.tsv", *VALIDATION],
    ["data.path=train.tsv", "tokenizer=words"],
    ["data.train=train", "data.languages=[de,en]", "data.alignments_path=links", "data.limit=190"],
    ["data.train=train.jsonl", "data.val=val.tsv", "data.test=val.tsv", "readout=pointer_generator"],
    ["data.path=train.jsonl", "tokenizer=subwords", "tokenizer.max_size=40"],
    ["data.path=train.tsv", "tokenizer=characters", "shared_vocabulary=true", "overfit=30"],
    ["data.path=train.parquet"],
    ["data=huggingface", "data.dataset=saved", "data.columns=[source,target]", *NO_SPLITS],
    ["data.train={b: [train.arrow, train.jsonl], a: val.tsv}", "data.weights={a: 1, b: 2}", *VALIDATION],
]


@pytest.mark.parametrize("overrides", SETTINGS)
@pytest.mark.usefixtures("folder")
def test_mapped_corpora_equal_those_in_memory(
    overrides: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "attnlab.data")
    monkeypatch.setattr(vocabularies, "SAMPLE", 150)
    _, expected = results([*overrides, "paths.cache=cache"], caplog)
    monkeypatch.setattr(mapped, "IN_MEMORY", 20)
    monkeypatch.setattr(examples, "FEW", 20)
    for module in (mapped, examples):
        monkeypatch.setattr(module, "BLOCK", 16)
    for _ in range(2):  # written, and read again
        corpus, actual = results([*overrides, "paths.cache=cache"], caplog)
        assert isinstance(corpus.train, MappedPairs)
        assert actual == expected
    assert len(expected[-1]) >= 1
    folders = [path for path in Path("cache/corpora").iterdir() if path.is_dir()]
    assert all((path / "record.json").is_file() for path in folders)


@pytest.mark.usefixtures("large", "folder")
def test_slices_and_selections_of_mapped_pairs() -> None:
    load = partial(load_pairs, train="train.jsonl", val="val.tsv", test="val.tsv")
    expected, pairs = load().train, load(cache="cache").train
    assert isinstance(pairs, MappedPairs)
    for part in (slice(3, 9), slice(None), slice(150, None, -2), slice(-30, -1)):
        assert list(pairs[part]) == expected[part]
    assert (pairs[-1], pairs[204]) == (expected[-1], expected[204])
    with pytest.raises(IndexError):
        pairs[205]
    view = pairs[::-1]
    assert isinstance(view, MappedPairs)
    assert [*view.select(np.array([3, 1]))] == [expected[201], expected[203]]
    assert view.digest != pairs.digest
    assert list(pickle.loads(pickle.dumps(view))) == expected[::-1]
    assert [pair.origin for pair in pairs] == [pair.origin for pair in expected]


@pytest.mark.usefixtures("large", "folder")
def test_changed_files_and_settings_have_files_of_their_own() -> None:
    def load(**settings: Any) -> int:
        return len(
            load_pairs(train="train.tsv", val="val.tsv", test="val.tsv", cache="cache", **settings).train
        )

    size = load()
    assert load(limit=100) == 100
    with Path("train.tsv").open("a", encoding="utf-8") as file:
        file.write("one\tmore\n")
    assert load() == size + 1
    others = {"train": "train", "val": "train", "test": "train", "cache": "cache"}
    first, second = (load_pairs(languages=each, **others).train[0] for each in (["de", "en"], ["en", "de"]))
    assert (first.source, first.target) == (second.target, second.source)


@pytest.mark.usefixtures("large", "folder")
def test_broken_line_in_the_middle_leaves_nothing_behind() -> None:
    lines = Path("train.tsv").read_bytes().split(b"\n")
    Path("train.tsv").write_bytes(b"\n".join([*lines, b"caf\xe9\tcoffee", *lines]))
    with pytest.raises(UserError, match=rf"^train.tsv, line {len(lines) + 1}: not valid UTF-8"):
        load_pairs(train="train.tsv", val="val.tsv", cache="cache")
    assert not [path for path in Path("cache").rglob("*") if path.name[0] != "." and path.is_file()]


def read(folder: Path = Path("cache")) -> MappedPairs:
    pairs = load_pairs(train="train.tsv", val="val.tsv", test="val.tsv", cache=folder).train
    assert isinstance(pairs, MappedPairs)
    return pairs


@pytest.mark.usefixtures("large", "folder")
def test_full_disk_is_one_line_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path, pairs: Iterator[object]) -> dict[str, Any]:
        (folder / "text.uint8").write_bytes(b"half")
        next(iter(pairs))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(mapped, "write_pairs", write)
    with pytest.raises(
        UserError, match=r"^data.cache: no space left on the disk of cache for the pairs of tra"
    ):
        read()
    assert not [path for path in Path("cache/corpora").iterdir() if path.is_dir()]
    monkeypatch.undo()


@pytest.mark.usefixtures("large", "folder")
def test_cache_that_cannot_be_written_is_one_line() -> None:
    Path("file").write_text("")
    with pytest.raises(UserError, match=r"^data.cache: the pairs of train.tsv cannot be written to file"):
        read(Path("file"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "text.uint8").write_bytes(b"short"),
        lambda folder: (folder / "bounds.int64").unlink(),
        lambda folder: (folder / "record.json").write_text('{"format"'),
    ],
)
@pytest.mark.usefixtures("large", "folder")
def test_damaged_files_are_written_again(
    damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    expected = [*read()]
    (folder,) = (path for path in Path("cache/corpora").iterdir() if path.is_dir())
    damage(folder)
    assert [*read()] == expected
    assert f"{folder} is damaged: writing the pairs of train.tsv again" in caplog.text


def read_in_process(queue: Any, barrier: Any) -> None:
    barrier.wait()
    pairs = read()
    queue.put((len(pairs), pairs.digest))


@pytest.mark.usefixtures("large", "folder")
def test_processes_that_start_at_once_write_the_files_once(capfd: pytest.CaptureFixture[str]) -> None:
    context = multiprocessing.get_context("fork")
    queue, barrier = context.Queue(), context.Barrier(3)
    processes = [context.Process(target=read_in_process, args=(queue, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    found = {queue.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert len(found) == 1
    unfinished = [path for path in Path("cache/corpora").iterdir() if path.suffix == ".tmp"]
    assert not unfinished


@pytest.mark.usefixtures("folder")
def test_rows_of_parquet_and_arrow_equal_json_lines(tmp_path: Path) -> None:
    load = partial(load_pairs, val="val.tsv", test="val.tsv")
    expected = load(train="train.jsonl").train
    for name in ("train.parquet", "train.arrow", str(tmp_path / "saved" / "*.arrow")):
        pairs = load(train=name).train
        assert pairs == expected
        assert str(pairs[4].origin).endswith(f"{Path(name).suffix}, row 5")
    Path("train.parquet").write_bytes(Path("train.parquet").read_bytes()[:300])
    with pytest.raises(
        UserError, match=r"^data.train: train.parquet cannot be read \(.*create the file again$"
    ):
        load(train="train.parquet")
    with pytest.raises(UserError, match=r"^data.train: no.arrow cannot be read .*No such file"):
        load(train="no.arrow")


CORPORA = {"large": "train.jsonl", "small": "val.tsv"}  # of 205 and 9 pairs


@pytest.mark.usefixtures("folder")
def test_weights_and_temperature_choose_how_many_pairs_an_epoch_draws(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "attnlab.data")
    load = partial(load_pairs, train=CORPORA, val="val.tsv", test_fraction=0)
    assert load().draws == ()
    assert load(weights={"small": 1, "large": 3}).draws == ((205, 160), (9, 54))  # 3/4 and 1/4 of 214
    assert "data.train.small: 9 pairs, of which an epoch draws 54 (6.00 per pair)" in caplog.messages
    assert load(temperature=1).draws == ((205, 205), (9, 9))
    assert load(temperature=2).draws == ((205, 177), (9, 37))  # √205 : √9 = 14.32 : 3
    for settings, message in (
        ({"weights": {"small": 1}}, "give a number above 0 for each of large, small"),
        ({"weights": {"small": 1, "large": 0}}, "give a number above 0"),
        ({"weights": {"small": 1, "large": 1, "other": 1}}, "give a number above 0"),
        ({"weights": {"small": 1, "large": 1}, "temperature": 2}, "exclude each other"),
        ({"temperature": 2, "train": "train.jsonl"}, "need several corpora"),
        ({"temperature": 2, "val": None}, "give data.val"),
        ({"temperature": 2, "limit": 205}, "data.limit leaves no pairs of small"),
        ({"temperature": 2, "train": {"a": "val.tsv", "b": "val.tsv"}}, "give each file once"),
    ):
        with pytest.raises(UserError, match=message):
            load(**settings)


def test_every_pair_of_a_part_is_drawn_as_often_as_the_others() -> None:
    lengths = np.arange(14) % 5 + 1

    def epoch(number: int, world: int = 1) -> list[list[list[int]]]:
        ranks = []
        for rank in range(world):
            sampler = TrainingBatchSampler(
                lengths, lengths, size=4, draws=[(11, 4), (3, 10)], rank=rank, world=world
            )
            sampler.set_epoch(number)
            ranks.append([sorted(batch) for batch in sampler])
        return ranks

    drawn = [index for batch in epoch(0)[0] for index in batch]
    assert len(drawn) == 14
    first, second = ([drawn.count(index) for index in part] for part in (range(11), range(11, 14)))
    assert sorted(first) == 7 * [0] + 4 * [1]
    assert sorted(second) == [3, 3, 4]
    assert epoch(0) == epoch(0) != epoch(1)
    merged = sorted(batch for rank in epoch(0, world=2) for batch in rank)
    assert merged == sorted(epoch(0)[0])


@pytest.mark.parametrize("world", [1, 2])
def test_batches_of_tokens_draw_parts_within_the_limit_and_resume(world: int) -> None:
    generator = np.random.default_rng(1)
    sources, targets = generator.integers(1, 30, size=(2, 60))
    draws, sizes = [(40, 20), (20, 40)], []
    drawn = np.zeros(60, int)
    for epoch in range(30):
        batches: list[list[int]] = []
        for rank in range(world):
            sampler = TrainingBatchSampler(
                sources, targets, size=150, batch_type="tokens", draws=draws, seed=3, rank=rank, world=world
            )
            sampler.set_epoch(epoch)
            steps = [*sampler]
            assert len(steps) == len(sampler)
            sampler.resume(epoch, 2)
            assert [*sampler] == steps[2:]
            batches += steps
        counts = np.bincount(np.concatenate(batches), minlength=60)
        assert (counts[:40].sum(), counts[:40].max(), counts[40:].tolist()) == (20, 1, 20 * [2])
        assert all((sources[batch].max() + targets[batch].max()) * len(batch) <= 150 for batch in batches)
        sizes.append(sorted(map(len, batches)))
        drawn += counts
    assert all(each == sizes[0] for each in sizes)
    assert drawn[:40].min() >= 5  # 15 of 30 are expected


@pytest.mark.usefixtures("folder", "large")
def test_code_of_a_tokenizer_from_outside_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    code = """from attnlab.data.tokenization.train import whitespace
def mine(texts, **_):
    return whitespace(texts, max_size={})
"""
    sizes = []
    for size in (2, 4):
        Path("own_tokens.py").write_text(code.format(size) + "#" * size, encoding="utf-8")  # another size
        sys.modules.pop("own_tokens", None)
        importlib.invalidate_caches()
        linecache.clearcache()
        config = compose_run(
            ["data=pairs", "data.train=train.tsv", *VALIDATION, "tokenizer._target_=own_tokens.mine"]
        )
        sizes.append(build_vocabularies(config, build_corpus(config)).source.size)
    assert sizes == [3 + 1 + 2, 3 + 1 + 4]


@pytest.mark.usefixtures("folder", "large")
def test_warnings_are_those_of_the_validation_texts_at_hand(caplog: pytest.LogCaptureFixture) -> None:
    forms = {"composed": "\u00e9", "decomposed": "e\u0301"}
    for name in ("composed", "decomposed", "composed"):
        Path("plain.tsv").write_text("a\tZ\n" * 30 + "\u00e9\tY\n", encoding="utf-8")
        Path(f"{name}.tsv").write_text(f"{forms[name]}\tZ\n", encoding="utf-8")
        caplog.clear()
        config = compose_run(
            ["data=pairs", "data.train=plain.tsv", f"data.val={name}.tsv", "data.test_fraction=0"]
        )
        build_vocabularies(config, build_corpus(config))
        assert ("composed and decomposed" in caplog.text) is (name == "decomposed")


def test_files_that_change_while_they_are_read_are_not_kept(tmp_path: Path, large: None) -> None:
    state = ["old"]

    def read() -> Iterator[Pair]:
        for number in range(30):
            yield Pair(f"a {number}", state[0], origin=Origin("a.tsv", number))
        state[0] = "new"

    arguments: Any = {"cache": tmp_path, "key": lambda: {"digest": state[0]}, "noun": "the pairs of a.tsv"}
    with pytest.raises(UserError, match="changed while they were read"):
        mapped.gather(read, **arguments)
    assert {pair.target for pair in mapped.gather(read, **arguments)} == {"new"}
