"""Settings that depend on the number of training pairs."""

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

import attnlab
from attnlab.config.by_pairs import at_pairs, each_size, settings_by_pairs, values_by_pairs
from attnlab.config.checks import check_settings
from attnlab.errors import UsageError
from attnlab.jobs.preflight import find_error
from attnlab.nn.seq2seq import Seq2Seq
from commands import TINY_REVERSE
from commands import attnlab as run_attnlab

Composed = Callable[..., DictConfig]
SIZES = "encoder.size=8 100:12"
G2P = ("experiment=g2p", "data.train=a.tsv", "data.val=b.tsv")


@pytest.mark.parametrize(("pairs", "size"), [(0, 8), (1, 8), (99, 8), (100, 12), (7000, 12)])
def test_the_largest_number_that_is_reached_counts(pairs: int, size: int, composed: Composed) -> None:
    config = composed(SIZES)
    assert settings_by_pairs(config) == {"encoder.size": {1: 8, 100: 12}}
    assert at_pairs(config, pairs).encoder.size == size
    assert config.encoder.size == "8 100:12"
    assert [each.encoder.size for each in each_size(config)] == [8, 12]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder.size", 8),
        ("encoder.size", "8"),
        ("encoder.size", "8 9"),
        ("encoder.size", "8 90:9 50:7"),  # not in ascending order
        ("encoder.size", "8 0:9"),
        ("encoder.size", "8 1:9"),
        ("batching.batch_size", "8 9:9"),  # not of the network
        ("encoder.size", {1: 8, 9: 9}),
        ("attention.match", '{"_target_":"os.system"} 9:8'),
        ("attention.match", "8 9:[{_target_:os.system}]"),
    ],
)
def test_other_values_do_not_depend_on_the_pairs(name: str, value: object) -> None:
    assert values_by_pairs(name, value) == {}


def test_overrides_replace_them_and_interpolations_copy_them(composed: Composed) -> None:
    assert at_pairs(composed("attention_size=8 50:16", "attention=additive"), 60).attention.size == 16
    config = composed(*G2P, "embedding.size=96", "encoder.size=32 500:96", "attention_size=7")
    found = settings_by_pairs(config)
    assert not {"embedding.size", "attention_size", "attention.score.size"} & {*found}
    assert found["encoder.size"] == {1: 32, 500: 96}
    assert found["readout.dropout"] == {1: 0.4, 3000: 0.3}


def test_each_value_is_checked(composed: Composed) -> None:
    check_settings(composed(SIZES))
    for setting in ("encoder.size=8 100:0", "encoder.size=8 100:x", "batching.batch_size=8 100:16"):
        with pytest.raises(UsageError, match=r"=.?8 100:.*must be a whole number"):
            check_settings(composed(setting))
    positions = ("decoder=transformer", "decoder.positions=learned", "search.max_length=30")
    check_settings(composed(*positions, "decoder.max_positions=31 300:40"))
    with pytest.raises(UsageError, match=r"must be less than decoder.max_positions=20"):
        check_settings(composed(*positions, "decoder.max_positions=40 300:20"))


def test_networks_of_all_sizes_are_built_before_a_sweep(composed: Composed) -> None:
    error = find_error(composed("attention=multihead", "attention.heads=4", "attention_size=64 300:130"))
    assert error is not None
    assert "attention.heads=4 must divide attention.size=130" in error


def test_module_and_its_configuration_have_the_chosen_values() -> None:
    pairs = [("a b", "b a"), ("b c c", "c c b")]
    module, _ = attnlab.build(train=pairs * 60, val=pairs, encoder={"size": "8 100:12"})
    assert isinstance(module.network, Seq2Seq)
    assert module.network.encoder.memory_size == 2 * 12
    assert module.config is not None
    assert module.config.encoder.size == 12


@pytest.mark.slow
def test_bench_and_check_accept_settings_by_pairs(tmp_path: Path) -> None:
    sizes = ("encoder.size=6 5000:9", "trainer.max_steps=auto", "trainer.max_epochs=-1")
    sizes += ("trainer.val_check_interval=auto", "trainer.check_val_every_n_epoch=null")
    run_attnlab("bench", *TINY_REVERSE, *sizes, "--no-search", "--rounds=1", "--batches=1", folder=tmp_path)
    checked = run_attnlab("check", *TINY_REVERSE, *sizes, folder=tmp_path)
    assert checked.stdout.count("encoder attnlab.nn.encoders.RecurrentEncoder  keeps its contract") == 1
