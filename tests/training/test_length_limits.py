from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from attnlab.config.by_pairs import choose_by_pairs
from attnlab.data.examples import Examples
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.training.length_limits import (
    check_positions,
    choose_max_length,
    choose_steps,
    warn_of_cut_outputs,
    warn_of_unattended_positions,
)
from networks import sequences
from tiny_runs import SYNTHETIC, TINY, build_all


def examples(*lengths: tuple[int, int]) -> Examples:
    """Return examples with these numbers of source and target tokens; targets have SOS and EOS as well."""
    return Examples(
        sequences([[3] * source for source, _ in lengths]),
        sequences([[1, *[3] * target, 2] for _, target in lengths]),
    )


def test_outputs_and_references_beyond_the_limit_of_the_search_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outputs = [
        Prediction(index=i, source="", hypothesis="", tokens=["x"] * length + ["<eos>"])
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


def test_limit_of_the_search_follows_the_longest_target(composed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    limits = {}
    for length, *settings in (
        (41,),
        (103,),
        (103, "decoder=transformer", "decoder.positions=learned", "attention_size=8"),
    ):
        config = composed(
            *TINY,
            *SYNTHETIC,
            f"data.train_lengths=[{length},{length}]",
            "data.test_lengths=[200,200]",
            "search.max_length=null",
            *settings,
        )
        _, data = build_all(config)
        limits[length, *settings[:1]] = choose_max_length(config, data).search.max_length
    # 1.5 × 103 = 154.5; 256 learned positions, one of them for <eos>, are more
    assert limits == {(41,): 100, (103,): 155, (103, "decoder=transformer"): 155}
    assert caplog.messages[0] == "search.max_length=155: the longest target has 103 tokens"
    fixed = composed(*TINY, *SYNTHETIC, "search.max_length=7")
    assert choose_max_length(fixed, data).search.max_length == 7
    learned = ("decoder=transformer", "decoder.positions=learned", "decoder.max_positions=40")
    few = composed(*TINY, *SYNTHETIC, *learned, "attention_size=8", "search.max_length=null")
    _, data = build_all(few)
    assert choose_max_length(few, data).search.max_length == 39


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_texts_beyond_learned_positions_are_an_error_before_training(
    composed, tmp_path: Path, part: str
) -> None:
    lines = [*["a b\tb a"] * 3, "a b c d e f\tx y z w v u"]
    for name, rows in (("train", lines[:3]), ("val", lines[:2]), ("test", lines)):
        (tmp_path / name).write_text("".join(f"{row}\n" for row in rows))
    files = [f"data.{name}={tmp_path / name}" for name in ("train", "val", "test")]
    side = {"encoder": "source", "decoder": "target"}[part]

    def check(limit: int, *settings: str) -> None:
        learned = [f"{part}=transformer", f"{part}.positions=learned", f"{part}.max_positions={limit}"]
        sizes = [f"{part}.size=8", f"{part}.heads=2", "attention_size=8"]
        module, data = build_all(composed(*TINY, "data=pairs", *files, *learned, *sizes, *settings))
        check_positions(module.network, data)

    longest = {"encoder": 6, "decoder": 7}[part]  # <eos> included in targets
    check(longest)
    check(4, f"batching.max_{side}_length=4")
    with pytest.raises(UserError) as error:
        check(longest - 1)
    assert str(error.value) == (
        f"{part}.max_positions={longest - 1}: 1 test {side}s have more tokens (up to {longest}; the first is "
        f"{tmp_path}/test, line 4). Set {part}.max_positions={longest}, or "
        f"batching.max_{side}_length={longest - 1} to truncate them"
    )


@pytest.mark.parametrize(
    ("pairs", "steps"),
    [
        (10, 1000),
        (800, 1000),
        (1600, 1500),
        (8000, 4000),
        (33_000, 9300),
    ],  # 2 ** 0.6 = 1.52, 10 ** 0.6 = 3.98
)
def test_steps_sizes_and_dropout_follow_from_the_number_of_pairs(
    pairs: int, steps: int, composed: Callable[..., DictConfig], caplog: pytest.LogCaptureFixture
) -> None:
    config = composed("experiment=g2p", "data.train=a.tsv", "data.val=b.tsv")
    with caplog.at_level("INFO"):
        chosen = choose_steps(choose_by_pairs(config, pairs), pairs)
    assert (chosen.trainer.max_steps, chosen.trainer.val_check_interval) == (steps, steps // 4)
    assert (
        chosen.embedding.size == chosen.encoder.size == chosen.attention.score.size == (128, 64)[pairs < 300]
    )
    assert chosen.decoder.size == (256, 128)[pairs < 300]
    assert chosen.embedding.dropout == chosen.encoder.dropout == (0.2, 0.3)[pairs < 3000]
    assert chosen.readout.dropout == (0.3, 0.4)[pairs < 3000]
    sizes, length = caplog.messages
    assert sizes.startswith(f"{pairs:,} training pairs: ")
    assert f" encoder.size={chosen.encoder.size}," in sizes
    assert length == f"{pairs:,} training pairs: trainer.max_steps={steps}, from trainer.max_steps=auto"
    fixed = composed("experiment=g2p", "data.train=a.tsv", "data.val=b.tsv", "trainer.max_steps=70")
    assert choose_steps(fixed, pairs).trainer.val_check_interval == 17
    assert choose_steps(default := composed(), pairs) == default
