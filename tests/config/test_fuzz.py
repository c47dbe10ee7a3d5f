"""Every setting with values of every kind: refused in one line, or a network is built from it."""

from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnlab.config.checks import check_plain, check_settings, known_settings
from attnlab.config.compose import check_overrides, compose_run, explain
from attnlab.config.options import SYNONYMS, options_of, suggest
from attnlab.config.sections import SECTIONS
from attnlab.data.tokenization.train import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UsageError, UserError
from attnlab.files.yaml import read_yaml
from attnlab.training.build import build_network, build_translator

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**31, 10**20, 0.5, -0.5, 1e308),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "1", "true", "NaN"),
    *([], [1, 2, 3], ["a"], [None], [[1]], {}, {"a": 1}, {"_target_": "x"}, {"_target_": 1.5}),
    {"_target_": None},
)
TEXTS = (*(" ", "日本", "a\nb", "a\u202eb", "\0", "../../x", "x" * 500, "'", "[1"),)
"""Further values of settings that hold a text or nothing."""

OPTIONS = (
    "",
    "encoder=transformer decoder=transformer",
    "attention=mocha encoder=convolutional decoder=luong readout=pointer_generator optimizer=adadelta",
    "data=conala attention=multihead encoder=mingru decoder=luong reranking=conala scheduler=halving",
    "data=pairs tokenizer=words attention=local_p encoder=bag bridge=zero optimizer=sgd scheduler=plateau",
    "data=huggingface tokenizer=subwords attention=mixture logger=mlflow scheduler=cosine",
    "data=recall attention=location_sensitive logger=tensorboard",
    "data=scan attention=monotonic encoder=deltanet bridge=linear",
    "data=cogs attention=coverage_tu tokenizer=characters",
)

NETWORK = ("encoder", "bridge", "attention", "normaliser", "decoder", "readout", "embedding", "search")
LARGE = (2**31,)
"""Sizes of networks that are not built, not even on the meta device."""


@cache
def plain(options: str) -> dict[str, Any]:
    """Compose options once; returns their plain values."""
    settings: Any = OmegaConf.to_container(compose_run(options.split()))
    return settings


def default(options: str, name: str) -> Any:
    """Return the value of a setting of these options; None if they do not have it."""
    node: Any = plain(options)
    for key in name.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    return node


def start(options: str, name: str, value: Any) -> str | None:
    """Do what comes before a job with this setting; returns its one line if it is refused."""
    settings = {**plain(options)}
    *sections, key = name.split(".")
    node = settings
    for section in sections:
        node[section] = {**node.get(section, {})}
        node = node[section]
    node[key] = value
    try:
        check_plain(settings, imported=True)
        if name.partition(".")[0] in NETWORK and value not in LARGE:
            config, tokenizer = OmegaConf.create(settings), symbols(["3 4"], count=2)
            if name.startswith("search"):
                build_translator(config, Vocabularies(tokenizer, tokenizer))
                return None
            with torch.device("meta"):
                build_network(config, Vocabularies(tokenizer, tokenizer))
    except UserError as error:
        return str(error)
    return None


def test_default_composition_has_at_most_175_settings() -> None:
    assert len({*known_settings(plain(""), imported=True)} - {*SECTIONS}) <= 175


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_every_value_of_every_setting_is_refused_in_one_line_or_builds(options: str) -> None:
    names = {*known_settings(plain(options), imported=True), *filter(None, SECTIONS)}
    names |= {f"{section}._target_" for section in ("encoder", "data", "readout", "optimizer", "trainer")}
    if options:  # only what the first composition does not have
        names -= {*known_settings(plain(""), imported=True)}
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for name in sorted(names):
        texts = TEXTS if isinstance(default(options, name), str | None) else ()
        for value in (*VALUES, *texts):
            try:
                line = start(options, name, value)
            except Exception as error:
                failures.append(f"{name}={value!r}: {error!r}")
                continue
            outcomes["starts" if line is None else "refused"] += 1
            if line is not None and (not line.strip() or "\n" in line):
                failures.append(f"{name}={value!r}: {line!r}")
    print(f"{options or 'default'}: {len(names)} settings, {dict(outcomes)}")
    assert not failures
    assert outcomes["refused"] > outcomes["starts"]


@pytest.mark.parametrize(
    "override",
    [
        *("optimizer=inf", "experiment=nan", "debug=null", "reranking=[1,2,3]", "readout._target_=1.5"),
        *("data._target_=[1,2,3]", "trainer.strategy=[1]", "logger=[1]"),
        *("normaliser.temperature=99999999999999999999", "batching.shards=99999999999999999999"),
        *("embedding.target_vectors=nan", "scheduler.needs.total_steps=../../x"),
        *(r"variant=a\${b}", "encoder={a:1}", "encoder._targt_=x", "explain=nan", "study=inf"),
        *("scheduler=1.5", "reranking.similarity=false", "tokenizer@target_tokenizer=null"),
        *("seed=${oc.env:ATTNLAB_UNSET}", "paths.output=${seed", "callbacks.x=3"),
    ],
)
def test_override_of_the_wrong_kind_is_one_line(override: str) -> None:
    with pytest.raises((UserError, HydraException, OmegaConfBaseException)) as refused:
        check_settings(compose_run([override]))
    error = refused.value
    line = str(error) if isinstance(error, UserError) else explain(error)
    assert line.strip()
    assert "\n" not in line


@pytest.mark.parametrize(
    ("overrides", "suggestion"),
    [
        ("lr=0.1", "optimizer.lr"),
        ("arch=lstm", "encoder"),
        ("vocab=100", "tokenizer.max_size"),
        ("target_tokenizer=words", "tokenizer@target_tokenizer"),
        ("encoder.hidden=8", "encoder.size"),
        ("attention=bahdanau", "additive"),
        ("checkpoint.monitor=val/accuracy", "val/token_accuracy"),
        ("data=pairs data.dev=x", "data.val"),
        ("data=pairs data.features_col=1", "data.features_column"),
    ],
)
def test_words_of_other_toolkits_are_known(overrides: str, suggestion: str) -> None:
    with pytest.raises((UserError, HydraException)) as refused:
        check_settings(compose_run(overrides.split()))
    error = refused.value
    line = explain(error) if isinstance(error, HydraException) else str(error)
    assert f"Did you mean '{suggestion}'?" in line


def test_every_synonym_suggests_a_setting_that_exists() -> None:
    words = read_yaml(SYNONYMS)
    known = {"val/token_accuracy", "tokenizer@target_tokenizer", "none"}
    known |= {name for options in OPTIONS for name in known_settings(plain(options), imported=True)}
    known |= {option for group in ("encoder", "attention") for option in options_of(group)}
    for setting, synonyms in words["settings"].items():
        assert setting in known, setting
        for word in synonyms:
            section = setting.rpartition(".")[0]
            assert suggest(f"{section}.{word}".lstrip("."), known) == f" Did you mean {setting!r}?"
    for word in words["answers"]:
        with pytest.raises(UsageError, match=f"trainer.{word} is no setting: "):
            check_overrides([f"trainer.{word}=x"])
