"""Overrides that are added, swept, or read from the environment."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from attnlab.cli.best import _overrides
from attnlab.config.compose import accept, check_sweeps, compose_run
from attnlab.errors import UsageError


def test_settings_of_sections_are_accepted_without_plus() -> None:
    words = ["attention=dot", "seed=1", "a@b.c=d", "hydra.launcher.slots=1", "~data.path", "+data.path=x"]
    assert accept(words) == words
    assert accept(["data.path=x", "overfit=3", "trainer.max_epochs=1,2"]) == [
        "++data.path=x",
        "++overfit=3",
        "++trainer.max_epochs=1,2",
    ]


def test_added_value_that_another_setting_refers_to_is_allowed() -> None:
    assert compose_run(["+width=24", "encoder.size=${width}"]).encoder.size == 24
    with pytest.raises(UsageError, match="no part of attnlab has a setting 'width'"):
        compose_run(["+width=24"])
    config = compose_run(["lang=ady", "data=pairs", "data.train=low/${lang}_train.tsv"])
    assert (config.lang, config.data.train) == ("ady", "low/ady_train.tsv")


def test_numbers_and_flags_from_the_environment_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "12")
    monkeypatch.setenv("RATE", "5e-4")
    monkeypatch.setenv("WORD", "twelve")
    config = compose_run(["seed=${oc.env:SEED}", "optimizer.lr=${oc.env:RATE}", "name=${oc.env:SEED}"])
    assert (config.seed, config.optimizer.lr, config.name) == (12, 5e-4, "12")
    with pytest.raises(UsageError, match="seed=twelve: must be a whole number"):
        compose_run(["seed=${oc.env:WORD}"])


@pytest.mark.parametrize("word", ["nan", "null", "true", "no", "1e5", "1_000", "inf", "ady", "007"])
def test_text_setting_has_the_text_as_typed(word: str) -> None:
    assert compose_run([f"lang={word}", "variant=${lang}"]).variant == word
    assert compose_run([f"variant={word}"]).variant == word


def test_numbers_of_a_new_setting_stay_numbers() -> None:
    config = compose_run(["width=24", "rate=1e-3", "encoder.size=${width}", "optimizer.lr=${rate}"])
    assert (config.encoder.size, config.optimizer.lr) == (24, 0.001)
    assert accept(["lang=ady,nan,gre", "variant=${lang}"])[0] == "++lang=ady,'nan',gre"


def test_quoted_text_keeps_its_commas() -> None:
    assert compose_run(["variant='a,1,b'"]).variant == "a,1,b"
    assert compose_run(["variant=.5"]).variant == ".5"


def test_tokenizers_of_both_sides_can_be_swept() -> None:
    words = ["tokenizer=words,characters", "tokenizer@target_tokenizer=words,symbols"]
    check_sweeps(OverridesParser.create().parse_overrides(words))
    with pytest.raises(UsageError, match="give all values of tokenizer@target_tokenizer in one sweep"):
        check_sweeps(OverridesParser.create().parse_overrides([words[1], words[1]]))


def test_overfitting_replaces_the_steps_of_a_recipe() -> None:
    trainer = compose_run(["debug=overfit", "experiment=g2p", "data.train=a.tsv", "data.val=a.tsv"]).trainer
    assert (trainer.max_epochs, trainer.max_steps, trainer.val_check_interval) == (300, -1, None)


def test_command_of_the_best_run_of_a_sweep_has_values_that_can_be_typed() -> None:
    command = ["${env}", "attnlab", "train", "--config-dir", "opts", "experiment=x", "${args}"]
    sweep = {"command": command, "parameters": dict.fromkeys(["a", "data.path", "encoder.size", "unused"])}
    found = _overrides(sweep, {"a": None, "data.path": "a, b.tsv", "encoder.size": 64})
    assert found == [
        "--config-dir",
        "opts",
        "experiment=x",
        "a=null",
        'data.path="a, b.tsv"',
        "encoder.size=64",
    ]
