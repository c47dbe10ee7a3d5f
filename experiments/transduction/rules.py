"""Rules of historical normalisation from few words, and invented pairs for networks.

    python rules.py TRAIN [WORDS [SEED [LIST]]] > more.txt   # the training file and WORDS invented pairs
    python rules.py --score TRAIN DEV ...                    # error rate of the rules

Letters of each training pair are aligned by edit distance. What a letter becomes is predicted from up to five
letters around it; with few examples from fewer letters, and without any it is copied (interpolation after
Witten and Bell 1991). The invented words follow the letter trigrams of the training words, and the rules
normalise them: for networks, this is a prior towards copying letters and towards what few examples show.
With a LIST of modern words, one on each line, rules in the other direction spell these as in the old texts.
"""

import random
import sys
from collections import Counter, defaultdict
from heapq import nlargest
from math import inf, log
from pathlib import Path

from memorise import error_rate, memorise, read
from rapidfuzz.distance import Levenshtein

SHARE = 4.0
"""Weight of fewer letters (and of copying), relative to the estimate of Witten and Bell. Of 0.5, 1, 2 and 4,
it has the lowest mean error in German, Slovene and Swedish with 100 and 1,000 tokens (development files)."""
WORDS = 5000
"""Number of invented pairs."""
REAL = 0.5
"""Share of the lines that are real pairs, which are repeated."""
Context = tuple[str, ...]


def outputs_of(word: str, norm: str) -> list[str]:
    """Return what each letter of a word becomes. Inserted letters belong to the letter before them."""
    outputs = [""] * len(word)
    for tag, start, end, first, last in Levenshtein.opcodes(word, norm).as_list():
        if tag == "insert":
            outputs[max(start - 1, 0)] += norm[first:last]
        elif tag != "delete":
            for place in range(end - start):
                outputs[start + place] += norm[first + place]
    return outputs


def contexts(word: str, place: int) -> list[Context]:
    """Return the letter with more and more of its neighbours: 1 to 6 letters."""
    padded = f"###{word}###"
    here = place + 3
    windows = ((0, 0), (0, 1), (1, 1), (2, 1), (2, 2), (3, 2))
    return [tuple(padded[here - left : here + right + 1]) for left, right in windows]


class Rules:
    """Distributions of what a letter becomes, given the letters around it."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.counts: defaultdict[tuple[int, Context], Counter[str]] = defaultdict(Counter)
        for word, norm in sorted({*pairs}):
            for place, output in enumerate(outputs_of(word, norm)):
                for size, context in enumerate(contexts(word, place)):
                    self.counts[size, context][output] += 1

    def distribution(self, word: str, place: int) -> dict[str, float]:
        """Return the probabilities of the outputs for one letter."""
        shares = {word[place]: 1.0}
        for size, context in enumerate(contexts(word, place)):
            counts = self.counts.get((size, context))
            if counts is None:
                break
            fewer = SHARE * (len(counts) if size else 1)
            total = counts.total() + fewer
            shares = {output: fewer * share / total for output, share in shares.items()}
            for output, count in counts.items():
                shares[output] = shares.get(output, 0.0) + count / total
        return shares

    def normalise(self, word: str) -> str:
        """Return the most probable output."""
        shares = (self.distribution(word, place) for place in range(len(word)))
        return "".join(max(each, key=each.__getitem__) for each in shares)

    def best(self, word: str, count: int) -> list[tuple[float, str]]:
        """Return the most probable outputs with log p, by a beam of this size."""
        beam = [(0.0, "")]
        for place in range(len(word)):
            scores: dict[str, float] = {}
            for output, share in self.distribution(word, place).items():
                for score, text in beam:
                    scores[text + output] = max(score + log(share), scores.get(text + output, -inf))
            beam = nlargest(count, ((score, text) for text, score in scores.items()))
        return beam

    def sample(self, word: str, chance: random.Random) -> str:
        """Return an output that is drawn letter by letter."""
        shares = (self.distribution(word, place) for place in range(len(word)))
        return "".join(chance.choices([*each], [*each.values()])[0] for each in shares)


def invent(words: list[str], count: int, seed: int) -> list[str]:
    """Return new words: walks over the letter trigrams of the distinct words."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for word in sorted({*words}):
        padded = f"##{word}#"
        for place in range(2, len(padded)):
            following[padded[place - 2 : place]].append(padded[place])
    chance = random.Random(seed)
    invented: list[str] = []
    while len(invented) < count:
        word = "##"
        while not word.endswith("#") or len(word) == 2:
            word += chance.choice(following[word[-2:]])
        if 1 < len(word) - 3 <= max(map(len, words)):
            invented.append(word[2:-1])
    return invented


def more_pairs(
    pairs: list[tuple[str, str]], modern: list[str], count: int = WORDS, seed: int = 0
) -> list[tuple[str, str]]:
    """Return real pairs, repeated, and invented ones: words, or modern words in an old spelling."""
    if modern:
        rules, chance = Rules([(norm, word) for word, norm in pairs]), random.Random(seed)
        invented = [(rules.sample(norm, chance), norm) for norm in chance.choices(modern, k=count)]
    else:
        rules = Rules(pairs)
        words = invent([word for word, _ in pairs], count, seed)
        invented = [(word, rules.normalise(word)) for word in words]
    repeats = max(1, round(REAL / (1 - REAL) * count / len(pairs)))
    return pairs * repeats + [pair for pair in invented if all(pair)]


def main(*arguments: str) -> None:
    """Score the rules, or print the real and the invented pairs."""
    if arguments[0] == "--score":
        for train, dev in zip(arguments[1::2], arguments[2::2], strict=True):
            pairs, known = read(dev), memorise(read(train))
            rules = Rules(read(train))
            outputs = [(word, norm, known.get(word) or rules.normalise(word)) for word, norm in pairs]
            print(f"{Path(train).name} {Path(dev).name}: WER {error_rate(outputs):.2f}")
        return
    path, count, seed, modern = (*arguments, *("", str(WORDS), "0", "")[len(arguments) :])
    words = Path(modern).read_text(encoding="utf-8").split() if modern else []
    for word, norm in more_pairs(read(path), words, int(count), int(seed)):
        print(f"{word}\t{norm}")


if __name__ == "__main__":
    main(*sys.argv[1:])
