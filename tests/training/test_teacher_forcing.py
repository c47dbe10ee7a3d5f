"""Teacher forcing with a constant probability."""

import pytest
import torch

from attnlab.training.teacher_forcing import TeacherForcing

INPUTS = torch.zeros(2000, 7, dtype=torch.int64)


def test_full_teacher_forcing_draws_no_random_numbers() -> None:
    assert TeacherForcing().sample(INPUTS) is None


def test_per_step_draws_once_per_position() -> None:
    forced = TeacherForcing(0.5, per="step").sample(INPUTS)
    assert forced.shape == INPUTS.shape
    assert (forced == forced[:1]).all()


def test_per_token_draws_each_token_with_the_given_probability() -> None:
    forced = TeacherForcing(0.3, per="token").sample(INPUTS)
    assert not (forced == forced[:1]).all()
    # 14,000 draws: five standard deviations are 0.019
    assert forced.float().mean().item() == pytest.approx(0.3, abs=0.02)


def test_ratio_zero_never_reads_the_reference() -> None:
    forced = TeacherForcing(0.0).sample(INPUTS)
    assert not forced.any()
