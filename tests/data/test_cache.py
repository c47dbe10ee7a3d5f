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
from attnlab.data.batching import Examples, encode
from attnlab.data.cache import encode_once
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.training import whitespace
from attnlab.data.tokenization.vocabularies import Vocabularies, train_vocabularies
from attnlab.errors import UserError

PAIRS = [Pair("a b c", "c b a"), Pair("b", "b b é"), Pair("c\nd", "d")]
SETTINGS: dict[str, Any] = {"source_eos": True, "max_source_length": None, "max_target_length": None}


def vocabularies(pairs: list[Pair] = PAIRS) -> Vocabularies:
    return train_vocabularies(pairs, source=partial(whitespace, max_size=None))


def same(one: Examples, two: Examples) -> bool:
    return one.sides.keys() == two.sides.keys() and all(
        np.array_equal(one.sides[side].tokens, two.sides[side].tokens)
        and np.array_equal(one.sides[side].offsets, two.sides[side].offsets)
        for side in one.sides
    )


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("copying", [False, True])
def test_what_is_kept_is_what_encoding_gives(tmp_path: Path, copying: bool) -> None:
    settings = {**SETTINGS, "copying": copying}
    expected = encode(PAIRS, vocabularies(), **settings)
    first = encode_once(tmp_path, PAIRS, vocabularies(), **settings)
    second = encode_once(tmp_path, PAIRS, vocabularies(), **settings)
    assert same(first, expected)
    assert same(second, expected)
    assert isinstance(second.sides["sources"].tokens, np.memmap)
    for got, wanted in zip(second[[2, 0]], expected[[2, 0]], strict=True):
        torch.testing.assert_close(got, wanted)
    assert len(entries(tmp_path)) == 1


def test_it_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode_once(tmp_path, PAIRS, vocabularies(), **SETTINGS)
    monkeypatch.setattr(cache, "encode", None)
    encode_once(tmp_path, PAIRS, vocabularies(), **SETTINGS)


def test_whatever_encoding_depends_on_makes_another_entry(tmp_path: Path) -> None:
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
        examples = encode_once(tmp_path, pairs, vocabulary, **settings)
        assert same(examples, encode(pairs, vocabulary, **settings))
    assert len(entries(tmp_path)) == 7


@pytest.mark.parametrize("damage", ["cut short", "a bit", "gone", "no digests", "empty digests"])
def test_a_damaged_entry_is_found_and_made_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    encode_once(tmp_path, PAIRS, vocabularies(), **SETTINGS)
    (entry,) = tmp_path.iterdir()
    tokens, digests = entry / "targets-tokens.npy", entry / "digests.json"
    content = tokens.read_bytes()
    match damage:
        case "cut short":
            tokens.write_bytes(content[:-4])
        case "a bit":
            tokens.write_bytes(content[:-4] + bytes([content[-4] ^ 1]) + content[-3:])
        case "gone":
            tokens.unlink()
        case "no digests":
            digests.unlink()
        case "empty digests":
            digests.write_text("")
    with caplog.at_level(logging.WARNING):
        examples = encode_once(tmp_path, PAIRS, vocabularies(), **SETTINGS)
    assert "is damaged and made again" in caplog.text
    assert same(examples, encode(PAIRS, vocabularies(), **SETTINGS))
    caplog.clear()
    assert same(encode_once(tmp_path, PAIRS, vocabularies(), **SETTINGS), examples)
    assert not caplog.text
    assert json.loads(digests.read_text())
    assert entries(tmp_path) == [entry.name]


def test_without_a_place_to_write_the_pairs_are_encoded_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    examples = encode_once(tmp_path / "file" / "encoded", PAIRS, vocabularies(), **SETTINGS)
    assert same(examples, encode(PAIRS, vocabularies(), **SETTINGS))
    assert "going on without" in caplog.text


def test_what_cannot_be_encoded_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        encode_once(tmp_path, [Pair(" ", "a")], vocabularies(), **SETTINGS)
    assert entries(tmp_path) == []


def _encode(folder: Path, start: Any) -> None:
    start.wait()
    examples = encode_once(folder, PAIRS, vocabularies(), **SETTINGS)
    os._exit(0 if same(examples, encode(PAIRS, vocabularies(), **SETTINGS)) else 1)


def test_many_processes_may_ask_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(8)
    processes = [context.Process(target=_encode, args=(tmp_path, start)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert len(entries(tmp_path)) == 1
