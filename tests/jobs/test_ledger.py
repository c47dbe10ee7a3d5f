"""The table and the exit code of a sweep."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attnlab.errors import INTERRUPTED
from attnlab.files.digests import file_digest
from attnlab.files.run_directory import Run
from attnlab.files.writing import write_atomically
from attnlab.jobs.ledger import Ledger
from attnlab.jobs.status import print_finished
from daemons import held


def job(jobs: Ledger, folder: Path, name: str, monitor: str = "val/loss", **result: Any) -> Run:
    run = Run(folder / name)
    write_atomically(run.config, f"checkpoint: {{monitor: {monitor}}}")
    if result:
        run.write_result(**result)
    jobs.runs[run.directory] = run
    return run


def printed_lines(jobs: Ledger, width: int = 160) -> list[str]:
    console = Console(file=StringIO(), width=width, soft_wrap=True)
    jobs.end(console)
    lines = console.file.getvalue().splitlines()
    return [" ".join(line.replace("│", " ").split()) for line in lines]


def test_table_lists_every_job_and_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = Ledger()
    study = tmp_path / "outputs" / "a study"
    metrics = {"val/loss": 0.25, "val/bleu": 31.0}
    job(jobs, study, "none-seed0", status="failed", error="no such file: [x]\n:x:.tsv")
    job(jobs, study, "dot-seed0", status="finished", metrics=metrics, seconds=3725.2)
    another = tmp_path / "outputs" / "another"
    job(jobs, another, "dot-seed1", "val/bleu", status="finished", metrics=metrics, seconds=61.6)
    job(jobs, study, "dot-seed2", status="running")
    job(jobs, study, "[3]-seed3", status="interrupted")
    lines = printed_lines(jobs)
    folder = "outputs/a study"
    assert lines[0] == "outputs"
    assert [line for line in lines if line.startswith(("a study/", "another/"))] == [
        "a study/dot-seed0 finished 0.25 1:02:05",
        "another/dot-seed1 finished 31 1:02",
        "a study/none-seed0 failed",
        "a study/[3]-seed3 interrupted",
        "a study/dot-seed2 waiting",
    ]
    assert f"failed {folder}/none-seed0: no such file: [x] :x:.tsv" in lines
    assert not [line for line in printed_lines(jobs, width=40) if "…" in line]


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 0),
        (["finished"], 0),
        (["finished", "failed", "interrupted"], 1),
        (["finished", "interrupted"], 75),
        (["finished", None], 75),
    ],
)
def test_exit_code_is_that_of_the_worst_job(statuses: list[str | None], code: int, tmp_path: Path) -> None:
    jobs = Ledger()
    for number, status in enumerate(statuses):
        metrics = {"metrics": {"val/loss": 1.0}} if status == "finished" else {}
        job(jobs, tmp_path, str(number), **({"status": status, **metrics} if status else {}))
    assert jobs.end(Console(file=StringIO())) == code


def test_run_of_another_process_is_in_use(tmp_path: Path) -> None:
    jobs = Ledger()
    run = job(jobs, tmp_path, "dot-seed0", status="interrupted")
    with held(run) as holder:
        assert jobs.end(Console(file=StringIO())) == 1
        start = f"in use {run.directory} is in use by process {holder.pid} on "
        assert any(line.startswith(start) for line in printed_lines(jobs))
    assert jobs.end(Console(file=StringIO())) == INTERRUPTED


def test_finished_run_names_the_data_files_that_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.de").write_text("ein Haus")
    Path("train.en").write_text("a house")
    Path("removed").write_text("")
    digests = {name: file_digest(Path(name)) for name in ("train.de", "train.en", "removed")}
    jobs = Ledger()
    metrics = {"val/loss": 0.25}
    run = job(jobs, tmp_path, "dot", status="finished", metrics=metrics, data={"files": digests})
    Path("removed").unlink()
    print_finished(run)
    assert "changed" not in capsys.readouterr().out
    Path("train.en").write_text("a home!")
    print_finished(run)
    expected = (
        "train.en changed since this run was started: to train it again, add force=true; name=NAME trains "
        "another run on the changed files"
    )
    assert expected in capsys.readouterr().out.splitlines()
    assert sum(expected in line for line in printed_lines(jobs)) == 1
    run.write_result("finished", data={"files": {"train.en": file_digest(Path("train.en"))}})
    print_finished(run)
    assert "changed" not in capsys.readouterr().out
