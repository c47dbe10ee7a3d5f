"""SCAN against the published counts and examples, and an interpreter of its commands."""

import random
import re
from collections import Counter
from functools import partial

import pytest

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.scan import commands, generate_scan, partition
from attnlab.errors import UserError

COMMANDS = commands()


def parts(split: str) -> tuple[list[Pair], list[Pair]]:
    train, jumps, test = partition(split, random.Random(0))
    return [*train, *jumps], test


def interpret(command: str) -> list[str]:
    """Translate a command by the interpretation function of the paper's appendix."""
    if " and " in command:
        first, _, second = command.partition(" and ")
        return interpret(first) + interpret(second)
    if " after " in command:
        first, _, second = command.partition(" after ")
        return interpret(second) + interpret(first)
    *words, last = command.split()
    if last in ("twice", "thrice"):
        return interpret(" ".join(words)) * (2 if last == "twice" else 3)
    verb, *middle = [*words, last]
    action = [] if verb == "turn" else [f"I_{verb.upper()}"]
    if not middle:
        return action
    turn = [f"I_TURN_{last.upper()}"]
    match middle[0]:
        case "opposite":
            return turn + turn + action
        case "around":
            return (turn + action) * 4
        case _:
            return turn + action


def test_commands_of_the_grammar() -> None:
    assert len(COMMANDS) == len({pair.source for pair in COMMANDS}) == 20_910
    for pair in COMMANDS:
        assert pair.target.split() == interpret(pair.source)
    (target,) = (p.target for p in COMMANDS if p.source == "jump around left and walk opposite right twice")
    assert target == " ".join(["I_TURN_LEFT I_JUMP"] * 4 + ["I_TURN_RIGHT I_TURN_RIGHT I_WALK"] * 2)


@pytest.mark.parametrize(
    ("split", "train", "test"),
    [
        ("simple", 16_728, 4_182),
        ("length", 16_990, 3_920),
        ("length_dev", 13_838, 3_152),
        ("add_jump", 14_670, 7_706),
    ],
)
def test_splits_have_their_documented_sizes(split: str, train: int, test: int) -> None:
    training, tested = parts(split)
    assert (len(training), len(tested)) == (train, test)
    assert not {pair.source for pair in training} & {pair.source for pair in tested}


def test_length_and_jump_splits_are_those_of_the_paper() -> None:
    short, long = parts("length")
    assert {len(pair.target.split()) for pair in long} == {24, 25, 26, 27, 28, 30, 32, 33, 36, 40, 48}
    assert max(len(pair.target.split()) for pair in short) == 22
    known, new = parts("add_jump")
    assert Counter("jump" in pair.source for pair in known) == {False: 13_203, True: 1_467}
    assert {pair.source for pair in known if "jump" in pair.source} == {"jump"}
    assert all("jump" in pair.source for pair in new)


def test_development_split_of_length_lacks_a_phrase_as_its_test_does() -> None:
    training, test = parts("length")
    short, long = parts("length_dev")
    assert set(short) | set(long) == set(training)
    for pairs, tested, times in ((training, test, "thrice"), (short, long, "twice")):
        phrase = re.compile(f"(walk|look|run|jump) around (left|right) {times}")
        assert not any(phrase.search(pair.source) for pair in pairs)
        assert sum(bool(phrase.search(pair.source)) for pair in tested) > len(tested) / 2


def sizes(corpus: Corpus) -> dict[str, int]:
    return {name: len(pairs) for name, pairs in corpus.splits.items()}


def test_loaded_splits_are_disjoint_and_depend_on_the_seed() -> None:
    generate = partial(generate_scan, split="add_jump", train_size=1000, val_size=100, test_size=300)
    corpus = generate()
    assert sizes(corpus) == {"train": 1000, "val": 100, "test/same": 100, "test/composition": 300}
    sources = [{pair.source for pair in pairs} for pairs in corpus.splits.values()]
    assert len(set().union(*sources)) == sum(map(len, sources))
    jumps = [pair for pair in corpus.train if pair.source == "jump"]
    assert 60 < len(jumps) < 160  # a tenth
    assert corpus == generate() != generate(seed=1)
    assert sizes(generate_scan(split="simple")) == {"train": 16_228, "val": 500, "test/same": 4_182}
    longer = {"train": 15_990, "val": 500, "test/same": 500, "test/longer": 3_920}
    assert sizes(generate_scan(split="length")) == longer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "length", "val_size": 0}, "data.val_size=0"),
        ({"split": "length", "test_size": 3_921}, r"data.test_size=3921: must be in \[0, 3920\]"),
    ],
)
def test_invalid_settings_are_rejected(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        generate_scan(**options)
