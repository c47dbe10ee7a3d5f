"""Settings that depend on the number of training pairs."""

import json
from collections.abc import Callable

import pytest
from omegaconf import DictConfig, OmegaConf

from attnlab.config.by_pairs import at_pairs, tables
from attnlab.config.checks import check_settings
from attnlab.errors import UsageError
from attnlab.files.run_identity import identify, identity, short_hash
from attnlab.jobs.preflight import any_token, build_on_meta
from attnlab.training.own_parts import check_parts

Composed = Callable[..., DictConfig]
TABLE = "encoder.size={5:8,100:12}"


@pytest.mark.parametrize(("pairs", "size"), [(1, 8), (5, 8), (99, 8), (100, 12), (7000, 12)])
def test_the_largest_number_that_is_reached_counts(pairs: int, size: int, composed: Composed) -> None:
    config = composed(TABLE)
    assert [*tables(config)] == ["encoder.size"]
    chosen = at_pairs(config, pairs)
    assert chosen.encoder.size == size
    assert tables(config)
    assert not tables(chosen)


def test_tables_are_copied_by_interpolations_and_replaced_by_one_value(composed: Composed) -> None:
    config = composed("attention_size={1:8,50:16}", "attention=additive")
    assert at_pairs(config, 60).attention.size == 16
    recipe = ("experiment=g2p", "data.train=a.tsv", "data.val=b.tsv", "embedding.size=96", "attention_size=7")
    config = composed(*recipe)
    assert config.embedding.size == 96
    assert not {"embedding.size", "attention_size", "attention.score.size"} & {*tables(config)}


def test_each_value_of_a_table_is_checked(composed: Composed) -> None:
    check_settings(composed(TABLE))
    with pytest.raises(UsageError, match=r"^encoder.size=.*must be a whole number ≥ 1"):
        check_settings(composed("encoder.size={5:8,100:0}"))
    with pytest.raises(UsageError, match=r"^batching.batch_size=.*must be a whole number"):
        check_settings(composed("batching.batch_size={5:8,100:16}"))  # only settings of the network


def test_network_before_the_data_are_read_has_the_first_values(composed: Composed) -> None:
    assert build_on_meta(composed(TABLE)).encoder.memory_size == 2 * 8
    config = composed(TABLE, "attention=additive", "attention_size={1:5,9:7}")
    parts = [*check_parts(config, build_on_meta(config), any_token(), shipped=True)]
    assert "attention attnlab.nn.attention.Additive" in parts


def test_runs_differ_by_a_table_as_by_one_value(composed: Composed) -> None:
    one, other = (identity(OmegaConf.to_container(composed(*words))) for words in ((TABLE,), ()))
    assert {name for name in one if one[name] != other[name]} == {"encoder.size"}
    as_json = json.loads(json.dumps(OmegaConf.to_container(composed(TABLE), resolve=True)))
    assert short_hash(identity(as_json)) == identify(composed(TABLE))
