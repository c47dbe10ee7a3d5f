"""Small corpora of numbers, and their encoding without length limits."""

from functools import partial

from attnlab.data.corpus import Pair
from attnlab.data.examples import encode
from attnlab.data.tokenization.train import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies

DIGITS = Vocabularies(symbols(["3"], count=7), symbols(["3"], count=7))
"""The vocabulary 3 … 9 on both sides; ids equal the digits."""

encode_all = partial(encode, source_eos=False, max_source_length=None, max_target_length=None)


def numbered(count: int) -> list[Pair]:
    return [Pair(str(i), f"target {i}") for i in range(count)]
