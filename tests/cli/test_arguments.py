"""Arguments that several commands share."""

from attnlab.cli.arguments import without_reports


def test_a_glob_of_runs_may_include_a_report() -> None:
    runs = ["out/a", "out/a.html", "out/a_files", "out/b_files"]
    assert without_reports(runs) == ["out/a", "out/b_files"]
    assert without_reports(["out/a.html"]) == ["out/a.html"]  # refused later, by its name
