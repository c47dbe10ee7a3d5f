from __future__ import annotations

import pytest

from attnlab.data.examples import Examples, Sequences
from attnlab.files.predictions import Prediction
from attnlab.training.length_limits import warn_of_cut_outputs, warn_of_unattended_positions
from tiny_runs import SYNTHETIC, TINY, build_all


def examples(*lengths: tuple[int, int]) -> Examples:
    """Return examples with these numbers of source and target tokens; targets have SOS and EOS as well."""
    return Examples(
        Sequences.from_rows([[3] * source for source, _ in lengths]),
        Sequences.from_rows([[1, *[3] * target, 2] for _, target in lengths]),
    )


def test_outputs_and_references_beyond_the_limit_of_the_search_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outputs = [
        Prediction(index=i, source="", reference="", hypothesis="", tokens=["x"] * length + ["<eos>"])
        for i, length in enumerate((4, 3, 5))
    ]
    warn_of_cut_outputs("test/a", outputs, examples((1, 5), (1, 6), (1, 5)), max_length=5)
    assert caplog.messages == [
        "test/a: 1 of 3 outputs end at search.max_length=5, and 1 references are longer"
    ]
    caplog.clear()
    warn_of_cut_outputs("test", outputs[:2], examples((9, 5)), max_length=5)
    assert caplog.messages == []


def test_sources_beyond_the_positions_of_location_attention_are_counted(
    composed, caplog: pytest.LogCaptureFixture
) -> None:
    lengths = ["data.train_lengths=[3,6]", "attention.max_length=4"]
    module, data = build_all(composed(*TINY, *SYNTHETIC, "attention=location", *lengths))
    warn_of_unattended_positions(module.network, data)
    longer = sum(len(pair.source.split()) > 4 for pair in data.pairs("train"))
    assert 0 < longer < len(data.pairs("train"))
    assert caplog.messages == [
        f"{longer} training sources are longer than attention.max_length=4: later positions get weight 0"
    ]
    caplog.clear()
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    warn_of_unattended_positions(module.network, data)
    assert caplog.messages == []
