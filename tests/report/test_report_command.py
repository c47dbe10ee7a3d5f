"""The command `attnlab report`."""

import json
import re
from pathlib import Path

import pytest

from attnlab.cli.main import run
from commands import attnlab
from run_files import with_data, write_run


def write_study(folder: Path) -> None:
    right = [(f"s{n}", f"s{n}", f"s{n}") for n in range(8)]
    wrong = [(source, reference, "wrong") for source, reference, _ in right]
    for seed, (ours, theirs) in enumerate([(60.0, 50.0), (62.0, 51.0), (63.0, 53.0)]):
        for variant, bleu, sentences in (("dot", ours, right), ("none", theirs, wrong)):
            scores = {"test/bleu": bleu, "test/loss": 1 / bleu}
            write_run(folder, variant, seed, scores=scores, sentences=sentences)
    write_run(folder, "[bold]mean[/bold]", 0, status="failed")


def test_report_prints_tables_and_writes_files(tmp_path: Path) -> None:
    write_study(tmp_path)
    done = attnlab("report", "reverse", "-o", "out/report.html", folder=tmp_path)
    assert done.stderr == ""
    assert "61.7 [57.8, 65.4]" in done.stdout
    assert "dot beats none by 10.3 BLEU [8.9, 11.8], p = 0.002 (Holm, 2 tests), 3 seeds." in done.stdout
    assert "8 inputs, 3 seeds." in done.stdout
    headings = [line for line in done.stdout.splitlines() if line.startswith("Across ")]
    assert headings == ["Across training runs", "Across test inputs"]
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
    folder = tmp_path / "out" / "report_files"
    assert (
        "not included: [bold]mean[/bold] seed 0, failed – result.json contains no error message"
        in done.stdout.partition("┏")[0]  # before the tables
    )
    assert done.stdout.count("not included") == 1
    kinds = [f"{name}.{kind}" for name in ("comparisons", "costs", "scores") for kind in ("csv", "md", "tex")]
    assert sorted(path.name for path in (folder / "tables").iterdir()) == kinds
    assert (folder / "results.csv").is_file()
    assert (folder / "figures" / "scores-bleu.svg").is_file()
    assert (folder / "figures" / "scores-bleu.pdf").read_bytes().startswith(b"%PDF")


def test_default_output_is_the_folder_of_the_study(tmp_path: Path) -> None:
    write_study(tmp_path)
    assert run(["report", str(tmp_path / "reverse"), "--metric", "test/loss"]) == 0
    assert (tmp_path / "reverse" / "report_files" / "results.csv").is_file()
    table = tmp_path / "reverse" / "report_files" / "tables" / "scores.md"
    assert table.read_text().startswith("| variant | seeds | loss")


def test_study_without_finished_runs_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, status="running")
    written = write_run(tmp_path, seed=1, status="failed")
    write_run(tmp_path, seed=2, status=None)
    before = sorted(tmp_path.rglob("*"))
    assert run(["report", str(tmp_path)]) == 1
    assert capsys.readouterr() == (
        "",
        "attnlab: No run is finished (1 running, 1 failed, 1 not started). "
        f"{written.directory}: result.json contains no error message\n",
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_reports_in_one_folder_have_their_own_files(tmp_path: Path) -> None:
    for name in ("dot", "none"):
        write_run(tmp_path, name, name=name)
        assert run(["report", str(tmp_path / name), "-o", str(tmp_path / f"{name}.html")]) == 0
    for name in ("dot", "none"):
        assert f"\n{name}," in (tmp_path / f"{name}_files" / "results.csv").read_text()


def test_files_of_an_earlier_report_go_and_columns_are_written_once(tmp_path: Path) -> None:
    for lang in ("aa", "bb"):
        settings = {"data": {"train": lang}, "decoder": {"size": ord(lang[0])}, "lang": lang}
        with_data(write_run(tmp_path, f"dot-{lang}", **settings), test=lang)
    output = tmp_path / "report.html"
    assert run(["report", str(tmp_path), "-o", str(output)]) == 0
    earlier = {*(tmp_path / "report_files" / "tables").glob("*-lang-*")}
    notes = tmp_path / "report_files" / "tables" / "notes.txt"
    notes.write_text("mine")
    only = [str(path) for path in tmp_path.glob("reverse/*") if "dot-aa" in path.name]
    assert run(["report", *only, "-o", str(output), "--columns", "BLEU", "BLEU"]) == 0
    assert earlier
    assert not any(path.exists() for path in earlier)
    assert notes.exists()


def test_control_characters_of_foreign_names_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for variant in ("a\x1b[31mred :bug:", "\u202eb\r\n"):
        folder = write_run(tmp_path / variant[:1], "x").directory
        settings = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(settings.replace("variant: x", f"variant: {json.dumps(variant)}"))
    assert run(["report", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert r"a\x1b[31mred :bug:" in output
    assert r"\u202eb\r\n" in output
    assert not {"\x1b", "\r", "\u202e"} & set(output)


@pytest.mark.slow
def test_narrow_terminal_shows_every_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_study(tmp_path)
    for columns, terminal in (("20", "1"), ("20", "")):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("FORCE_COLOR", terminal)
        assert run(["report", str(tmp_path / "reverse")]) == 0
        output = capsys.readouterr().out
        assert "61.7" in output
        assert "parameters" in output
        assert "…" not in output


def test_dashboard_without_api_key_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert run(["report", str(tmp_path), "--wandb"]) == 1
    assert re.match(r"attnlab: The dashboard could not be saved: .*wandb login", capsys.readouterr().err)
