"""Overrides of a sweep before its jobs are composed."""

from __future__ import annotations

import pytest

from attnlab.config.compose import compose_run
from attnlab.config.sweep_overrides import with_settings_of_swept_options
from attnlab.errors import UsageError


def test_settings_of_swept_options_are_left_to_the_jobs() -> None:
    words = ["experiment=eng_deu,eng_mar", "data.path=a b.txt", "seed=1,2", "name=x", "encoder.size=8"]
    completed = with_settings_of_swept_options(words)
    assert completed == [words[0], "data.path=choice(a b.txt)", *words[2:]]
    # No option is swept, so that Hydra knows which settings there are
    assert with_settings_of_swept_options(["seed=1,2", "data.path=x"]) == ["seed=1,2", "data.path=x"]
    assert with_settings_of_swept_options(["attention=glob(*)"]) == ["attention=glob(*)"]
    for word in ("++data.path=x", "~data.path", "data.path=", "hydra.launcher.slots=1"):
        assert with_settings_of_swept_options([words[0], word]) == [words[0], word]


def test_empty_sweep_is_refused() -> None:
    for sweep in ("seed=range(0,0)", "seed=range(3,1)"):
        with pytest.raises(UsageError, match="the sweep is empty"):
            with_settings_of_swept_options([sweep])


def test_added_value_that_another_setting_refers_to_is_allowed() -> None:
    assert compose_run(["+width=24", "encoder.size=${width}"]).encoder.size == 24
    with pytest.raises(UsageError, match="no part of attnlab has a setting 'width'"):
        compose_run(["+width=24"])
