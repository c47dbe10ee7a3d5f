"""`attnlab benchmark` and `attnlab benchmark check`, as users type them."""

import re
from pathlib import Path

import pytest

from attnlab.cli.benchmark import _match, _study
from attnlab.cli.benchmark_suite import other_settings
from attnlab.config.compose import compose_run
from attnlab.config.options import config_dirs
from attnlab.report.benchmark import scores
from commands import attnlab

MINE = (
    "from attnlab.nn.attention import Additive\n\n\n"
    "class Mine(Additive):\n    '''A mechanism from outside.'''\n"
)
OWN = ("attention=additive", "attention._target_=cosine.Mine", "attention.size=72")
MATCHED = "+attention@attention.match=additive"
WORDS = (*OWN, "trainer.max_steps=2", "search.max_length=8")


@pytest.mark.slow
def test_a_mechanism_is_compared_with_stored_results_and_checked(tmp_path: Path) -> None:
    (tmp_path / "cosine.py").write_text(MINE)
    done = attnlab("benchmark", *WORDS, "--quick", "--name", "Mine.1", folder=tmp_path)
    assert "attention cosine.Mine  keeps its contract" in done.stdout
    assert "left out" not in done.stdout  # no task of --quick has a file
    assert f"1.09 of the parameters of additive: the decoder gets another size ({MATCHED})" in done.stdout
    assert not re.search(r"(duplicate|recall|scan): [\d.]+ of the parameters", done.stdout)
    assert "Not compared, for lack of stored results" not in done.stdout
    assert "On no test set is it shown to be better than additive." in done.stdout
    worse = r"Significantly worse than additive over inputs of these networks, seed 0: .*duplicate \(-"
    assert re.search(worse, done.stdout)
    assert "Not comparable with the other rows, and not to be cited: settings beside those" in done.stdout
    assert (
        "seeds 0: 3 or more are needed, without a gap from 0; test sets or seeds are missing: bulg"
        in done.stdout
    )
    (file,) = tmp_path.glob("outputs/benchmark_Mine.1_*.csv")
    ours = scores.read(file)
    assert {each.task for each in ours} == {"duplicate", "recall", "scan"}
    page = file.with_suffix(".html").read_text()
    assert "Mine.1 (duplicate)" in page
    assert page.count("<table") == 3
    assert "look around left twice and run left twice" in page  # the explorer
    latex = file.with_suffix(".tex").read_text()
    assert latex.count(r"\toprule") == 2
    assert "test set & Mine.1 & additive & none" in latex

    assert all(each.code and each.outputs for each in ours)

    checked = attnlab("benchmark", "check", str(file), *WORDS, MATCHED, folder=tmp_path, code=1)
    assert (
        "FAIL  settings beside those of the attention: search.max_length=8 trainer.max_steps=2"
        in checked.stdout
    )
    assert f"PASS  {len([*ours])} scores follow from their counts" in checked.stdout
    assert "left out: conala, data/conala-train.json does not exist (--corpora FOLDER)" in checked.stdout
    for task in ("duplicate", "recall", "scan"):  # a run of each
        assert f"PASS  {task}, Mine.1, seed 0" in checked.stdout
    refused = attnlab("benchmark", "check", str(file), "attention=dot", folder=tmp_path, code=2)
    assert f"was trained with {' '.join(WORDS)} {MATCHED}: if you trust it, append it" in refused.stderr


def test_an_option_of_a_mechanism_changes_the_attention_only(tmp_path: Path) -> None:
    (folder := tmp_path / "conf" / "attention").mkdir(parents=True)
    option = "defaults: [dot]\n_target_: attnlab.nn.attention.Dot\n"
    (folder / "mine.yaml").write_text(option)
    dot = "attention: {_target_: attnlab.nn.attention.Dot, _partial_: true}"
    wider = f"# @package _global_\n{dot}\nsearch: {{beam_size: 5}}\nencoder: {{layers: 2}}\n"
    (folder / "wider.yaml").write_text(wider)
    with config_dirs([str(tmp_path / "conf")]):
        assert other_settings(["attention=mine", MATCHED, "logger=none", "paths.output=here"]) == []
        assert other_settings(["attention=wider"]) == [
            "settings that are not those of the suite: encoder.layers, search.beam_size"
        ]


def test_the_name_of_a_stored_mechanism_is_refused(tmp_path: Path) -> None:
    refused = attnlab("benchmark", "attention=dot", "--name", "additive", folder=tmp_path, code=2)
    assert "additive is a mechanism of the stored results" in refused.stderr
    same = attnlab("benchmark", "attention=dot", folder=tmp_path, code=2)
    assert "dot has these settings, and its results are stored: " in same.stderr
    name = attnlab("benchmark", "attention=dot", "--name", "a,b", folder=tmp_path, code=2)
    assert "--name a,b: use letters and digits of ASCII" in name.stderr
    word = attnlab("benchmark", "chek", "mine.csv", folder=tmp_path, code=2)
    assert "chek: neither a setting, KEY=VALUE, nor check FILE.csv" in word.stderr
    missing = attnlab("benchmark", "check", "mine.csv", folder=tmp_path, code=1)
    assert "mine.csv: no such file; results of attnlab benchmark are FILE.csv and FILE.npz" in missing.stderr


def test_decoder_size_is_matched_only_where_parameters_differ_and_it_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (matching,) = _match(["attention=none"])
    assert matching == MATCHED
    assert re.match(r"0\.\d\d of the parameters of additive: the decoder gets", capsys.readouterr().out)
    assert _match(["attention=dot"]) == []
    assert capsys.readouterr().out == ""
    assert _match(["attention=dot", "attention._target_=custom_parts.WideDot"]) == []
    assert "cannot make up for it: custom_parts.WideDot" in capsys.readouterr().out


def test_an_edited_mechanism_andother_settings_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "edited_mechanism.py"
    file.write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["attention=additive", "attention._target_=edited_mechanism.Mine"]
    config = compose_run(words)
    first = _study("Mine", words, config)
    assert first == _study("Mine", words[::-1], config)
    file.write_text(MINE.replace("from outside", "from elsewhere"))
    edited = _study("Mine", words, config)
    other = _study("Mine", [*words, "attention.size=72"], config)
    assert len({first, edited, other}) == 3
