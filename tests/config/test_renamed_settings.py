from __future__ import annotations

from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf

from attnlab.config.compose import apply_overrides, compose_run, explain
from attnlab.config.renamed_settings import DERIVED, RENAMED
from attnlab.errors import UsageError, UserError
from commands import attnlab

OUTDATED = [name if "=" in name else f"{name}=1" for name in (*RENAMED, *DERIVED)]


@pytest.mark.parametrize("override", OUTDATED)
def test_outdated_override_is_refused_with_its_current_form(override: str) -> None:
    group = ["attention=mixture"] if override.startswith("attention.") else []
    with pytest.raises((HydraException, UsageError)) as refused:
        compose_run([*group, override])
    error = refused.value
    message = explain(error) if isinstance(error, HydraException) else str(error)
    assert message.startswith(override)
    assert "\n" not in message
    key = override.partition("=")[0]
    current = {**RENAMED, **{key: f"{key} is now derived from" for key in DERIVED}}
    assert current.get(override, current.get(key)) in message


@pytest.mark.slow
@pytest.mark.parametrize("old", RENAMED)
def test_current_form_of_an_outdated_override_composes(old: str) -> None:
    values = {
        "attention.bells": "3",
        "data.test_path": "x.json",
        "batching.by": "tokens",
        "search.coverage_penalty": "0.2",
        "teacher_forcing.k": "100",
        "teacher_forcing.value": "0.5",
    }
    values |= {"callbacks.pictures.count": "3", "callbacks.pictures.every_n_epochs": "3"}
    new = RENAMED[old] if "=" in old else f"{RENAMED[old]}={values.get(old, 'true')}"
    groups = {"attention.bells": ["attention=mixture"], "data.test_path": ["data=conala"]}
    words = [f"+{word}" if word.startswith("tune=") else word for word in new.split(" ")]
    compose_run([*groups.get(old, []), *words])


def test_evaluate_overrides_name_the_current_setting() -> None:
    config = OmegaConf.create({"batching": {"batch_type": "sentences"}, "search": {"beam_size": 1}})
    with pytest.raises(UserError, match=r"batching\.by=tokens is now batching\.batch_type=tokens"):
        apply_overrides(config, ["batching.by=tokens"])
    with pytest.raises(UserError, match=r"search\.prefer_python=true is now reranking=python"):
        apply_overrides(config, ["search.prefer_python=true"])


def test_evaluate_can_replace_the_reranking_group() -> None:
    config = compose_run([])
    assert apply_overrides(config, ["reranking.coverage_penalty=0.2"]).reranking.coverage_penalty == 0.2
    assert apply_overrides(config, ["reranking.coverage_penalty=0.3", "reranking=python"]).reranking == (
        apply_overrides(config, ["reranking=python", "reranking.coverage_penalty=0.3"]).reranking
    )
    changed = apply_overrides(config, ["reranking=python", "reranking.coverage_penalty=0.3"])
    assert changed.reranking.accepts._target_ == "attnlab.metrics.conala.is_valid_python"
    assert changed.reranking.coverage_penalty == 0.3
    with pytest.raises(UserError, match="pyton"):
        apply_overrides(config, ["reranking=pyton"])


def test_outdated_option_is_a_one_line_usage_error_of_the_command(tmp_path: Path) -> None:
    done = attnlab("train", "encoder=gru", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "attnlab: encoder=gru is now encoder=recurrent encoder.cell=gru decoder.cell=gru\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", ["tune attention=dot,additive_biased", "tune batching.like_length=true,false"]
)
def test_outdated_setting_in_a_search_space_is_refused_before_the_first_trial(
    arguments: str, tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    done = attnlab(*arguments.split(), folder=tmp_path)
    assert done.returncode == 2
    assert " is now " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_unknown_step_is_one_line_of_the_command(tmp_path: Path) -> None:
    done = attnlab("train", "experiment=conala_steps", "step=5", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("attnlab: step=5: choose from 0_baseline, ")
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
