import logging

import pytest

from attnlab.data.corpus import Pair
from attnlab.data.splitting import filter_pairs
from attnlab.errors import UserError

PAIRS = [Pair("a b c d", "w x y z"), Pair("a b", "v w x y z"), Pair("a", "b"), Pair("a b c d e f g", "g")]


def test_pairs_are_dropped_by_length_and_ratio_and_counted(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    assert filter_pairs(PAIRS, max_tokens=None, max_ratio=None) == PAIRS
    assert not caplog.records
    assert filter_pairs(PAIRS, max_tokens=5, max_ratio=2) == [PAIRS[0], PAIRS[2]]
    assert caplog.messages == [
        "dropped 2 of 4 training pairs: 1 longer than data.max_tokens, 1 above data.max_ratio"
    ]
    assert filter_pairs(PAIRS, max_tokens=None, max_ratio=2.5) == PAIRS[:3]


def test_limits_that_drop_everything_are_an_error():
    with pytest.raises(UserError, match="drop all 2 training pairs"):
        filter_pairs(PAIRS[:2], max_tokens=1, max_ratio=None)
