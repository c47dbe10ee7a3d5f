from __future__ import annotations

import json
import logging
import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.data import cache
from attnlab.data.cache import encode_cached
from attnlab.data.corpus import Pair
from attnlab.data.examples import Examples, encode
from attnlab.data.tokenization.train import whitespace
from attnlab.data.tokenization.vocabularies import Vocabularies, train_vocabularies
from attnlab.errors import UserError
from attnlab.files.writing import MACHINE

PAIRS = [Pair("a b c", "c b a"), Pair("b", "b b é"), Pair("c\nd", "d")]
SETTINGS: dict[str, Any] = {"source_eos": True, "max_source_length": None, "max_target_length": None}


def vocabularies(pairs: list[Pair] = PAIRS) -> Vocabularies:
    return train_vocabularies(pairs, source=partial(whitespace, max_size=None))


def equal(one: Examples, two: Examples) -> bool:
    return one.sequences.keys() == two.sequences.keys() and all(
        np.array_equal(one.sequences[name].tokens, two.sequences[name].tokens)
        and np.array_equal(one.sequences[name].offsets, two.sequences[name].offsets)
        for name in one.sequences
    )


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("with_copy_ids", [False, True])
def test_cached_encoding_equals_fresh_encoding(tmp_path: Path, with_copy_ids: bool) -> None:
    settings = {**SETTINGS, "with_copy_ids": with_copy_ids}
    expected = encode(PAIRS, vocabularies(), **settings)
    first = encode_cached(tmp_path, PAIRS, vocabularies(), **settings)
    second = encode_cached(tmp_path, PAIRS, vocabularies(), **settings)
    assert equal(first, expected)
    assert equal(second, expected)
    assert isinstance(second.sequences["sources"].tokens, np.memmap)
    for got, wanted in zip(second[[2, 0]], expected[[2, 0]], strict=True):
        torch.testing.assert_close(got, wanted)
    assert len(entries(tmp_path)) == 1


def test_pairs_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode_cached(tmp_path, PAIRS, vocabularies(), **SETTINGS)
    monkeypatch.setattr(cache, "encode", None)
    encode_cached(tmp_path, PAIRS, vocabularies(), **SETTINGS)


def test_temporary_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    encode_cached(tmp_path, PAIRS, vocabularies(), **SETTINGS)
    (entry,) = tmp_path.iterdir()
    ended = multiprocessing.get_context("fork").Process(target=int)
    ended.start()
    ended.join()
    stale, current = (entry / f".sources-tokens.npy.{MACHINE}-{pid}.tmp" for pid in (ended.pid, os.getpid()))
    for path in (stale, current):
        path.touch()
    encode_cached(tmp_path, PAIRS, vocabularies(), **SETTINGS)
    assert not stale.exists()
    assert current.exists()  # it may be in use


def test_different_inputs_have_different_entries(tmp_path: Path) -> None:
    other = [*PAIRS[:2], Pair("c d", "d")]
    longer = vocabularies([*PAIRS, Pair("e", "e")])
    for pairs, vocabulary, settings in (
        (PAIRS, vocabularies(), SETTINGS),
        (other, vocabularies(), SETTINGS),
        (PAIRS[::-1], vocabularies(), SETTINGS),
        (PAIRS, longer, SETTINGS),
        (PAIRS, vocabularies()._replace(target=longer.target), SETTINGS),
        (PAIRS, vocabularies(), {**SETTINGS, "source_eos": False}),
        (PAIRS, vocabularies(), {**SETTINGS, "max_target_length": 2}),
    ):
        examples = encode_cached(tmp_path, pairs, vocabulary, **settings)
        assert equal(examples, encode(pairs, vocabulary, **settings))
    assert len(entries(tmp_path)) == 7


@pytest.mark.parametrize("damage", ["truncated", "flipped bit", "missing", "no checksums", "empty checksums"])
def test_damaged_entry_is_written_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    encode_cached(tmp_path, PAIRS, vocabularies(), **SETTINGS)
    (entry,) = tmp_path.iterdir()
    tokens, checksums = entry / "targets-tokens.npy", entry / "checksums.json"
    content = tokens.read_bytes()
    match damage:
        case "truncated":
            tokens.write_bytes(content[:-4])
        case "flipped bit":
            tokens.write_bytes(content[:-4] + bytes([content[-4] ^ 1]) + content[-3:])
        case "missing":
            tokens.unlink()
        case "no checksums":
            checksums.unlink()
        case "empty checksums":
            checksums.write_text("")
    with caplog.at_level(logging.WARNING):
        examples = encode_cached(tmp_path, PAIRS, vocabularies(), **SETTINGS)
    if damage == "no checksums":  # an entry whose writer was killed
        assert not caplog.text
    else:
        assert "is damaged and will be written again" in caplog.text
    assert equal(examples, encode(PAIRS, vocabularies(), **SETTINGS))
    caplog.clear()
    assert equal(encode_cached(tmp_path, PAIRS, vocabularies(), **SETTINGS), examples)
    assert not caplog.text
    assert json.loads(checksums.read_text())
    assert entries(tmp_path) == [entry.name]


def test_pairs_are_encoded_without_a_writable_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    examples = encode_cached(tmp_path / "file" / "encoded", PAIRS, vocabularies(), **SETTINGS)
    assert equal(examples, encode(PAIRS, vocabularies(), **SETTINGS))
    assert "encoded pairs are not cached in" in caplog.text


def test_encoding_errors_leave_no_entry(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        encode_cached(tmp_path, [Pair(" ", "a")], vocabularies(), **SETTINGS)
    assert entries(tmp_path) == []


def _encode(folder: Path, start: Any) -> None:
    start.wait()
    examples = encode_cached(folder, PAIRS, vocabularies(), **SETTINGS)
    os._exit(0 if equal(examples, encode(PAIRS, vocabularies(), **SETTINGS)) else 1)


def test_eight_processes_encode_at_the_same_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(8)
    processes = [context.Process(target=_encode, args=(tmp_path, start)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert len(entries(tmp_path)) == 1
