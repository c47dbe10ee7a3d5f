"""Training, evaluation, prediction and scores of inflected words with features."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import attnlab
from attnlab.cli.main import run as run_command
from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run
from attnlab.training.checkpoints import read_checkpoint, save_checkpoint
from commands import attnlab as run_attnlab
from exports import write_checkpoint

RunOn = Callable[..., tuple[int, list[str], str]]

LEMMAS = ["deve", "zorluk", "ev", "göz", "kitap köpek"]
ENDINGS = {"N;ACC": "i", "N;ABL(PL;PSS(2,PL))": "lerinizden"}
ROWS = [f"{lemma}\t{features}\t{lemma}{ending}" for lemma in LEMMAS for features, ending in ENDINGS.items()]
NEW = ["yol\tN;ACC\tyoli", "at\tN;ACC\tati"]
SETTINGS = (
    *("experiment=inflection", "features=linear", "data.train=tur.trn", "data.val=tur.dev", "name=tur"),
    *("embedding.size=8", "encoder.size=8", "decoder.size=16", "attention_size=8", "search.max_length=9"),
    *("trainer.max_steps=6", "trainer.val_check_interval=3", "trainer.accelerator=cpu", "logger=none"),
    *("batching.batch_size=4", "callbacks.attention_figures.count=0"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("words")
    (folder / "tur.trn").write_text("\n".join([*ROWS, "deve\tN;ACC(\tdevei", "deve"]), encoding="utf-8")
    (folder / "tur.dev").write_text("\n".join([*ROWS[:3], *NEW]), encoding="utf-8")
    done = run_attnlab("train", *SETTINGS, folder=folder)
    for line in ("left out 1 line (11): a bracket of the features", "left out 1 line (12): 1 column"):
        assert line in done.stderr.replace("\n", " ")
    (directory,) = (folder / "outputs" / "tur").iterdir()
    return Run(directory)


@pytest.mark.slow
def test_predictions_are_columns_of_lemma_features_and_form(trained: Run) -> None:
    outputs = read_predictions(trained.predictions / "val.jsonl")
    # Without a test split, the attention is that of the validation split
    assert [output.index for output in read_predictions(trained.attention)] == [0, 1, 2, 3, 4]
    rows = (trained.predictions / "val.tsv").read_text(encoding="utf-8").splitlines()
    assert [row.split("\t")[0] for row in rows] == ["deve", "deve", "zorluk", "yol", "at"]
    assert [row.split("\t")[1] for row in rows[:2]] == ["N;ACC", "N;ABL(PL;PSS(2;PL))"]
    assert [row.split("\t")[2] for row in rows] == [output.hypothesis for output in outputs]
    scores = trained.read_result()["metrics"]
    assert scores["val/wer"] == pytest.approx(100 * (1 - scores["val/exact_match"]))
    assert "val/ser" in scores
    # Scores of sentences, and ser by another name
    assert not {"val/bleu", "val/chrf", "val/edit_distance"} & scores.keys()


@pytest.mark.slow
def test_known_and_unknown_sources_are_scored_apart(
    trained: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.directory.parents[2])
    assert run_command(["evaluate", str(trained.directory), "--split", "val"]) == 0
    printed = capsys.readouterr().out
    assert "known: in the training split" in printed
    assert re.search(
        r"of the \d most confident outputs, with a mean confidence of 0\.\d\d, \d are right", printed
    )
    assert "least confident outputs" not in printed  # of five outputs
    by_length = printed.partition("by source length, in tokens")[2]
    assert re.search(r"│ +6 +│ +1 +│", by_length)  # "zorluk" without its features
    folder = trained.directory / "evaluations" / "val" / "errors"
    assert {"confusions.svg", "groups.png"} < {path.name for path in folder.iterdir()}
    assert trained.read_result()["seen"] == {"val": [0, 1, 2]}
    assert any(row.split()[:6] == ["│", "source", "│", "known", "│", "3"] for row in printed.splitlines())
    groups = (trained.directory / "evaluations" / "val" / "errors" / "groups.csv").read_text().splitlines()
    assert [row.split(",")[:3] for row in groups if row.startswith(("source", "feature,ACC"))] == [
        ["source", "known", "3"],
        ["source", "unknown", "2"],
        ["feature", "ACC", "4"],
    ]
    result = json.loads((trained.directory / "evaluations" / "val" / "result.json").read_text())
    parts = result["known_and_unknown"]
    mean = (3 * parts["known"]["wer"] + 2 * parts["unknown"]["wer"]) / 5
    assert result["metrics"]["val/wer"] == pytest.approx(mean)

    Path("decomposed.dev").write_text("go\u0308z\tN;ACC\tgözi\nyol\tN;ACC\tyoli\n", encoding="utf-8")
    assert run_command(["evaluate", str(trained.directory), "data.val=decomposed.dev"]) == 0
    assert "1 of these sources were in the training split" in capsys.readouterr().out


@pytest.mark.slow
def test_an_ensemble_knows_the_sources_of_all_members(
    trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.directory.parents[2])
    members = [tmp_path / "first.ckpt", tmp_path / "second.ckpt"]
    for start, member in enumerate(members):
        checkpoint = read_checkpoint(trained.best)
        checkpoint["attnlab"]["training_sources"] = checkpoint["attnlab"]["training_sources"][1 - start :: 2]
        save_checkpoint(checkpoint, member)
    (evaluation,) = attnlab.evaluate(members, split="val")
    assert evaluation.result["seen_in_training"] == 3


@pytest.mark.slow
def test_features_are_read_by_predict_score_and_the_python_interface(trained: Run, run_on: RunOn) -> None:
    lines = "deve\tN;ACC\ndeve\ndeve\tN;ACC(\ndeve\tN;ABL(PL)\n"
    code, outputs, errors = run_on(lines, "predict", str(trained.directory))
    assert code == 1
    assert [bool(output) for output in outputs[1:3]] == [False, False]
    assert len(outputs) == 4
    assert "line 2 of standard input: 'deve' has no features" in errors
    assert "line 3 of standard input: the features 'N;ACC(' have a bracket" in errors
    _, rows, _ = run_on(lines, "predict", str(trained.directory), "--nbest", "1")
    assert rows[0].split("\t")[:5] == ["line", "rank", "input", "features", "output"]
    assert rows[4].split("\t")[:5] == ["4", "1", "deve", "N;ABL(PL)", outputs[3]]
    model = attnlab.load(trained)
    translated = model.translate(["deve\tN;ACC", "deve\tN;ABL(PL)"])
    assert [output.hypothesis for output in translated] == [outputs[0], outputs[3]]

    lines = "deve\tN;ACC\tdevei\ndeve\tdevei\n"
    code, outputs, errors = run_on(lines, "score", str(trained.directory))
    assert code == 1
    assert "line 2 of standard input: it has 2 columns instead of 3" in errors
    (score,) = model.score([("deve\tN;ACC", "devei")])
    assert float(outputs[0].split("\t")[0]) == pytest.approx(score.log_probability, abs=1e-3)
    other = model.score([("deve\tN;ABL(PL)", "devei")])[0].log_probability
    assert other != pytest.approx(score.log_probability, abs=1e-6)


@pytest.mark.slow
def test_covered_files_are_translated_without_scores(
    trained: Run, tmp_path: Path, run_on: RunOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row.rpartition("\t")[0] for row in ROWS[:3]]
    (tmp_path / "tur.tst").write_text("\n".join(rows), encoding="utf-8")
    monkeypatch.chdir(trained.directory.parents[2])
    setting = f"data.test={tmp_path / 'tur.tst'}"
    code, printed, _ = run_on("", "evaluate", str(trained.directory), setting)
    assert code == 0
    assert any("test has no targets: 3 outputs, no scores" in line for line in printed)
    (written,) = trained.directory.glob("evaluations/*/test.tsv")
    outputs = [line.split("\t")[2] for line in written.read_text(encoding="utf-8").splitlines()]
    for stdin in (rows, ROWS[:3]):
        code, predicted, _ = run_on("\n".join(stdin), "predict", str(trained.directory))
        assert (code, predicted) == (0, outputs)


def test_columns_of_lines_are_those_of_the_training_file(tmp_path: Path, run_on: RunOn) -> None:
    """LEMMA<TAB>FORM<TAB>FEATURES, as in the shared tasks of 2016 to 2018."""
    settings = ("data.features_column=2", "data.target_column=1")
    texts = [
        f"{word}{i}\t{word}\t{each}" for i in range(10) for word, each in (("deve", "N;ACC"), ("at", "N;PL"))
    ]
    run = str(write_checkpoint(tmp_path, *settings, texts=["deve\tdevei\tN;ACC", "at\tatlar\tN;PL", *texts]))
    lines = "deve\tdevei\tN;ACC\nat\tN;PL\n\tN;PL\nat\tat\tN;PL\n"
    code, scores, errors = run_on(lines, "score", run)
    pairs = [("deve\tN;ACC", "devei"), ("at\tN;PL", "at")]
    expected = [score.log_probability for score in attnlab.load(run).score(pairs)]
    assert [float(line.split("\t")[0]) for line in (scores[0], scores[3])] == pytest.approx(
        expected, abs=1e-3
    )
    assert (code, scores[1:3]) == (1, ["", ""])
    assert "line 2 of standard input: it has 2 columns instead of 3" in errors
    code, outputs, _ = run_on("\ndeve\tdevei\tN;ACC\n\n", "score", run)
    assert (code, outputs) == (0, ["", scores[0], ""])
    code, outputs, errors = run_on(lines, "predict", run)
    assert (code, [bool(output) for output in outputs]) == (1, [True, True, False, True])
    assert "line 3 of standard input: there is no text before the tab" in errors
    assert "2 lines (1, 4) of standard input: more columns: only text and features are read" in errors
    assert "1 line (2) of standard input: another number of columns than line 1, which has 3" in errors


def test_predict_continues_prefixes_of_words_with_features(tmp_path: Path, run_on: RunOn) -> None:
    texts = [f"deve{i}\tN;ACC\tdevei" for i in range(10)]
    settings = ("tokenizer=characters", "data.features_column=1", "data.target_column=2")
    run = str(write_checkpoint(tmp_path, *settings, texts=texts))
    lines = "deve\tN;ACC\tdev\ndeve\t\t\ndeve\tdev\ndeve\tN;ACC(\tdev\n"
    code, outputs, errors = run_on(lines, "predict", run, "--prefix")
    assert (code, outputs[0][:3], outputs[2:]) == (1, "dev", ["", ""])
    assert (
        "line 3 of standard input: --prefix needs three columns or more: a source, its features and" in errors
    )
    assert "line 4 of standard input: the features 'N;ACC(' have a bracket" in errors


def test_predict_continues_prefixes_of_words_with_several_columns_of_features(
    tmp_path: Path, run_on: RunOn
) -> None:
    texts = [f"deve{i}\tN\tACC\tdevei" for i in range(10)]
    settings = ("tokenizer=characters", "data.features_column=[1,2]", "data.target_column=3")
    run = str(write_checkpoint(tmp_path, *settings, texts=texts))
    code, outputs, errors = run_on("deve\tN\tACC\tde\ndeve\tN\n", "predict", run, "--prefix")
    assert (code, outputs[0][:2], outputs[1:]) == (1, "de", [""])
    assert "line 2 of standard input: --prefix needs three columns or more" in errors
    _, (output,), _ = run_on("deve\tN;ACC\tde\n", "predict", run, "--prefix")
    assert output == outputs[0]


def test_features_apart_need_a_column(tmp_path: Path) -> None:
    (tmp_path / "words.tsv").write_text("a\tb\nb\ta\n", encoding="utf-8")
    files = ("data.train=words.tsv", "data.val=words.tsv", "tokenizer=characters")
    done = run_attnlab(
        "train", "data=pairs", *files, "data.test_fraction=0", "features=linear", "logger=none",
        folder=tmp_path, code=2,
    )  # fmt: skip
    assert "Set data.features_column" in done.stderr


@pytest.mark.slow
def test_reports_beside_the_runs_are_no_runs_and_cards_list_the_letters(
    trained: Run, run_on: RunOn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["report", str(trained.directory.parent), "--metric", "val/wer"]) == 0
    capsys.readouterr()
    everything = sorted(map(str, trained.directory.parent.iterdir()))
    assert len(everything) == 3  # the page, the folder of its files, and the run
    outputs = [run_on("deve\tN;ACC\n", "predict", *runs) for runs in (everything, [str(trained.directory)])]
    assert outputs[0] == outputs[1]
    assert run_command(["info", str(trained.directory)]) == 0
    card = capsys.readouterr().out
    assert "letters: a d e g i k l o p r t u v z ö ␣\n" in card
