"""Names of variants that share a `variant` setting."""

from __future__ import annotations

from pathlib import Path

from attnlab.report.collect import collect
from run_files import write_run


def test_variants_are_distinguished_by_their_settings(tmp_path: Path) -> None:
    for size in (64, 128):
        for seed in (0, 1):
            write_run(tmp_path, seed=seed, decoder={"size": size, "layers": 1})
    write_run(tmp_path, "none", decoder={"size": 64, "layers": 2})
    study = collect([tmp_path])
    assert {variant: len(runs) for variant, runs in study.by_variant().items()} == {
        "additive · decoder.size=64": 2,
        "additive · decoder.size=128": 2,
        "none": 1,
    }


def test_runs_with_different_settings_and_seeds_are_distinguished(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, optimizer={"lr": 0.1})
    write_run(tmp_path, seed=1, optimizer={"lr": 0.2})
    assert set(collect([tmp_path]).variants) == {"additive · optimizer.lr=0.1", "additive · optimizer.lr=0.2"}


def test_settings_equal_to_the_seed_do_not_distinguish_variants(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, seed=seed, data={"_target_": "a", "seed": seed, "cache": f"cache{seed}"})
    assert collect([tmp_path]).variants == ["additive"]


def test_other_settings_that_equal_the_seed_distinguish_variants(tmp_path: Path) -> None:
    for number in (1, 2):
        write_run(tmp_path, seed=number, encoder={"layers": number})
    assert len(set(collect([tmp_path]).variants)) == 2


def test_distinguishing_settings_are_minimal(tmp_path: Path) -> None:
    write_run(tmp_path, decoder={"_target_": "attnlab.nn.LuongDecoder", "input_feeding": True})
    write_run(tmp_path, decoder={"_target_": "attnlab.nn.BahdanauDecoder", "cell": "gru"})
    assert set(collect([tmp_path]).variants) == {
        "additive · decoder=LuongDecoder",
        "additive · decoder=BahdanauDecoder",
    }


def test_runs_of_two_studies_are_distinguished_by_name(tmp_path: Path) -> None:
    write_run(tmp_path, name="reverse", encoder={"size": 1, "layers": 1})
    write_run(tmp_path, name="sort", encoder={"size": 2, "layers": 2})
    study = collect([tmp_path])
    assert study.name == "reverse + sort"
    assert set(study.variants) == {"additive · name=reverse", "additive · name=sort"}
