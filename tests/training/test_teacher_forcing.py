"""Teacher-forcing schedules."""

import math

import pytest
import torch

from attnlab.training.teacher_forcing import TeacherForcing, sample_forced

INPUTS = torch.zeros(2000, 7, dtype=torch.int64)


def test_constant_ratio_does_not_depend_on_the_step() -> None:
    assert TeacherForcing(0.5).ratio(0) == TeacherForcing(0.5).ratio(10**6) == 0.5


def test_linear_ratio_falls_to_its_end_value_and_stays() -> None:
    schedule = TeacherForcing(decay="linear", end=0.2, steps=4)
    assert [schedule.ratio(step) for step in (0, 1, 2, 4, 100)] == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.2])


def test_inverse_sigmoid_matches_a_manual_calculation() -> None:
    schedule = TeacherForcing(decay="inverse_sigmoid", steps=10)
    assert schedule.ratio(0) == pytest.approx(10 / 11)
    assert schedule.ratio(10) == pytest.approx(10 / (10 + math.e))
    assert schedule.ratio(10**9) == pytest.approx(0.0)
    schedule = TeacherForcing(0.9, decay="inverse_sigmoid", end=0.4, steps=10)
    assert schedule.ratio(10) == pytest.approx(0.4 + 0.5 * 10 / (10 + math.e))


def test_full_teacher_forcing_draws_no_random_numbers() -> None:
    assert sample_forced(TeacherForcing(), 0, INPUTS) is None


def test_per_step_draws_once_per_position() -> None:
    forced = sample_forced(TeacherForcing(0.5, per="step"), 0, INPUTS)
    assert forced.shape == INPUTS.shape
    assert (forced == forced[:1]).all()


def test_per_token_draws_each_token_with_the_given_probability() -> None:
    forced = sample_forced(TeacherForcing(0.3, per="token"), 0, INPUTS)
    assert not (forced == forced[:1]).all()
    # 14,000 draws: five standard deviations are 0.019
    assert forced.float().mean().item() == pytest.approx(0.3, abs=0.02)


def test_ratio_zero_never_reads_the_reference() -> None:
    forced = sample_forced(TeacherForcing(0.0), 0, INPUTS)
    assert not forced.any()
