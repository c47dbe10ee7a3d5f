"""SCAN (Lake & Baroni, 2018): navigation commands to actions, generated from the grammar of the paper.

The grammar has 20,910 commands, each with one sequence of actions:

- C → S and S | S after S | S
- S → V twice | V thrice | V
- V → D opposite D | D around D | D | U, where D is a turn or a primitive with a direction
"""

import random
from collections.abc import Iterator
from itertools import product
from typing import Literal

from attnlab.data.corpus import Corpus, Pair
from attnlab.errors import UserError
from attnlab.settings import Count, Size

PRIMITIVES = {"walk": ["I_WALK"], "look": ["I_LOOK"], "run": ["I_RUN"], "jump": ["I_JUMP"], "turn": []}
"""Actions of the verbs. Only `turn` needs a direction."""
TURNS = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
REPETITIONS = {"": 1, " twice": 2, " thrice": 3}

Split = Literal["simple", "length", "length_dev", "add_jump"]
SPLITS: dict[Split, str] = {
    "simple": "same",
    "length": "longer",
    "length_dev": "longer",
    "add_jump": "composition",
}
"""Name of the test set of each split."""
TRAIN_SHARE = 0.8
LONGEST_TRAINING = {"length": 22, "length_dev": 15}
"""Actions of the longest training commands. "walk around left thrice" has 24, and "… twice" 16."""
JUMP_SHARE = 0.1  # of the training pairs of add_jump


def commands() -> list[Pair]:
    """Return all commands with their actions, in the order of the grammar."""
    phrases = [
        (verb + times, actions * count) for verb, actions in _verbs() for times, count in REPETITIONS.items()
    ]
    pairs = [*phrases]
    for (first, then), (second, now) in product(phrases, phrases):
        pairs.append((f"{first} and {second}", then + now))
        pairs.append((f"{first} after {second}", now + then))
    return [Pair(command, " ".join(actions)) for command, actions in pairs]


def _verbs() -> Iterator[tuple[str, list[str]]]:
    """Generate the verbs with and without directions, and their actions."""
    for verb, actions in PRIMITIVES.items():
        if actions:
            yield verb, actions
        for direction, turn in TURNS.items():
            yield f"{verb} {direction}", [turn, *actions]
            yield f"{verb} opposite {direction}", [turn, turn, *actions]
            yield f"{verb} around {direction}", [turn, *actions] * 4


def generate_scan(
    *,
    split: Split = "simple",
    train_size: Size | None = None,
    val_size: Size = 500,
    test_size: Count | None = None,
    seed: Count = 0,
) -> Corpus:
    """Return a split of SCAN with the sizes of the paper, or the development split of its length split.

    - simple: a random 80 % of the commands for training (16,728), the others are the test set `same` (4,182).
    - length: commands of at most 22 actions for training (16,990), longer ones are the test set `longer`
      (3,920).
    - length_dev: to choose settings for length. The training commands of length, of which those of at most 15
      actions are for training (13,838), and the others are the test set `longer` (3,152).
    - add_jump: all commands without "jump" for training, and the command "jump" itself repeated so that it is
      a tenth of the 14,670 training pairs; the other commands with "jump" are the test set `composition`
      (7,706).

    The validation pairs are taken at random from the training pairs. Except for simple, as many again are
    the test set `same` of commands like those in training. The command "jump" stays in training.

    Args:
        split: "simple", "length" (more actions than in training), "length_dev" (the same within the training
            commands of "length") or "add_jump" (a verb known only on its own).
        train_size: number of training pairs, drawn at random; None for all.
        val_size: number of validation pairs, taken from the training pairs, and of pairs in the test set
            `same`.
        test_size: number of test pairs, drawn at random; None for all.
        seed: seed of the random draws; runs with different seeds share their data.
    """
    rng = random.Random(f"{seed} {split}")
    others, jumps, test = partition(split, rng)
    rng.shuffle(others)
    if not 1 <= val_size < len(others) // 2:
        raise UserError(f"data.val_size={val_size}: must be at least 1 and below {len(others) // 2}")
    val, others = others[:val_size], others[val_size:]
    tests = {SPLITS[split]: _draw(rng, "test_size", test, test_size)}
    if split != "simple":
        tests = {"same": others[:val_size], **tests}
        others = others[val_size:]
    return Corpus(train=_draw(rng, "train_size", [*others, *jumps], train_size), val=val, test=tests)


def partition(split: Split, rng: random.Random) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Return the training pairs, the repeated pair "jump" that is added to them, and the test pairs."""
    pairs = commands()
    if split == "simple":
        rng.shuffle(pairs)
        size = round(TRAIN_SHARE * len(pairs))
        return pairs[:size], [], pairs[size:]
    if split == "add_jump":
        train = [pair for pair in pairs if "jump" not in pair.source.split()]
        test = [pair for pair in pairs if "jump" in pair.source.split() and pair.source != "jump"]
        jump = next(pair for pair in pairs if pair.source == "jump")
        return train, [jump] * round(len(train) * JUMP_SHARE / (1 - JUMP_SHARE)), test
    if split == "length_dev":
        pairs = [pair for pair in pairs if _actions(pair) <= LONGEST_TRAINING["length"]]
    longest = LONGEST_TRAINING[split]
    train, test = ([pair for pair in pairs if (_actions(pair) > longest) == long] for long in (False, True))
    return train, [], test


def _actions(pair: Pair) -> int:
    return len(pair.target.split())


def _draw(rng: random.Random, setting: str, pairs: list[Pair], size: int | None) -> list[Pair]:
    """Return a number of the pairs in random order, or all of them."""
    if size is None:
        return pairs
    if not 0 <= size <= len(pairs):
        raise UserError(f"data.{setting}={size}: must be in [0, {len(pairs)}], or null for all")
    return rng.sample(pairs, size)
