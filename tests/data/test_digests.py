from typing import Any

import pytest

from attnlab.data.corpus import Pair
from attnlab.data.digests import are_seen, count_duplicates, source_hashes
from attnlab.data.tokenization import train

TRAINING = ["K\u00f6nig", "und"]


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({}, [True, False, False, False]),
        ({"normalization": "nfc"}, [True, True, False, False]),
        ({"normalization": "nfd"}, [True, True, False, False]),
        ({"lowercase": True, "normalization": "nfc"}, [True, True, True, False]),
    ],
)
def test_sources_are_seen_if_the_tokenizer_reads_them_as_one_of_training(
    settings: dict[str, Any], seen: list[bool]
) -> None:
    tokenizer = train.characters(TRAINING, **settings)
    hashes = source_hashes([Pair(source, "") for source in TRAINING], tokenizer)
    others = ["K\u00f6nig", "Ko\u0308nig", "UND", "Konig"]
    assert are_seen([Pair(source, "") for source in others], hashes, tokenizer).tolist() == seen


def test_pairs_that_repeat_an_earlier_one_are_counted() -> None:
    pairs = [Pair("a", "x"), Pair("a", "y"), Pair("a", "x"), Pair("b", "x"), Pair("x", "a"), Pair("a", "x")]
    assert count_duplicates(pairs) == 2
