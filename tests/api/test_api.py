"""The Python interface: training, loading, translating, data frames."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch

import attnlab
from attnlab.errors import UserError
from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run
from commands import TINY_REVERSE, clean_environment
from exports import sentences, write_checkpoint
from forked import ForkedProcess

SETTINGS = [*TINY_REVERSE, "trainer.max_epochs=2"]
SOURCES = ["3 4 5", "6", "7 3 4 6", "5 5"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def trained(output: Path) -> Iterator[Run]:
    """A run trained from Python, in a worker process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(output)
        for name, value in clean_environment().items():
            patch.setenv(name, value)
        patch.setattr(subprocess, "Popen", ForkedProcess)
        yield attnlab.train(SETTINGS)


@pytest.fixture(scope="module")
def model(trained: Run) -> attnlab.Model:
    return attnlab.load(trained)


def test_import_loads_few_modules_and_lists_the_public_names() -> None:
    code = (
        "import sys; before = set(sys.modules); import attnlab; print(len(set(sys.modules) - before))\n"
        "assert not {'torch', 'lightning', 'hydra', 'numpy'} & set(sys.modules)\n"
        "assert set(attnlab.__all__) <= set(dir(attnlab))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        attnlab.lod  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.slow
def test_train_returns_a_finished_run_and_trains_it_once(
    trained: Run, output: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = trained.read_result()
    assert result["status"] == "finished"
    assert result["command"].startswith("attnlab.train(['data.symbols=5'")
    assert trained.directory.parent == output / "outputs" / "reverse"
    before = trained.result.stat().st_mtime_ns
    assert attnlab.train(SETTINGS) == trained
    assert trained.result.stat().st_mtime_ns == before


def test_wrong_settings_raise_one_line(trained: Run) -> None:
    with pytest.raises(attnlab.UserError, match=r"Unknown attention 'addditive'\. Did you mean 'additive'\?"):
        attnlab.train(["attention=addditive"])
    with pytest.raises(attnlab.UserError, match="give a list of settings"):
        attnlab.train("seed=1")
    with pytest.raises(attnlab.UserError, match=r"overrides='seed=1': give a list of settings"):
        attnlab.evaluate(trained, "seed=1")


def test_translate_equals_the_predictions_of_the_run(trained: Run, model: attnlab.Model) -> None:
    records = read_predictions(trained.attention)
    predictions = model.translate([record.source for record in records], batch_size=5)
    for record, prediction in zip(records, predictions, strict=True):
        assert prediction.hypothesis == record.hypothesis
        assert prediction.tokens == record.tokens
        assert prediction.score == pytest.approx(record.score, abs=1e-4)
        assert prediction.weights == pytest.approx(record.weights, abs=0.003)


def test_translate_returns_the_best_hypotheses_in_the_order_of_the_sentences(model: attnlab.Model) -> None:
    predictions = model.translate(SOURCES, beam_size=3, nbest=2, max_length=5, batch_size=3)
    assert [(prediction.index, prediction.rank) for prediction in predictions] == [
        (index, rank) for index in range(4) for rank in (1, 2)
    ]
    assert [prediction.source for prediction in predictions[::2]] == SOURCES
    for prediction in predictions:
        assert prediction.weights.shape == (len(prediction.tokens), len(prediction.source_tokens))
    assert model.translate("3 4 5")[0].hypothesis == model.translate(iter(SOURCES))[0].hypothesis
    assert model.translate([]) == []


def test_batches_are_bounded_by_padded_tokens(model: attnlab.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = ["3 4 5 6 7 3 4", "6", "5 5", "7 3 4 6", "4", "3 3 3"]
    expected = model.translate(sources, beam_size=2)
    monkeypatch.setattr("attnlab.training.model.MAX_PADDED_TOKENS", 12)
    pairs = [model.read(source) for source in sources]
    batches = list(model._batches(pairs, 64, False, beam_size=2))
    assert [rows for rows, _ in batches] == [[1, 4, 2], [5], [3], [0]]  # 3 · 2 · 2 = 12
    translated = model.translate(sources, beam_size=2)
    assert [each.tokens for each in translated] == [each.tokens for each in expected]


def test_translations_begin_with_their_prefixes(model: attnlab.Model) -> None:
    first, second = model.translate(["3 4 5", "6 7"], prefixes=["7 7", ""], beam_size=2)
    assert first.tokens[:2] == ["7", "7"]
    assert first.references == ()  # a prefix is not a reference
    assert second.hypothesis == model.translate("6 7", beam_size=2)[0].hypothesis
    assert model.translate("3 4 5", prefixes="7 7", beam_size=2)[0].hypothesis == first.hypothesis
    with pytest.raises(attnlab.UserError, match="1 prefixes for 2 sentences: give one for each"):
        model.translate(["3", "4"], prefixes=["5"])


@pytest.mark.parametrize(
    ("sentences", "search", "message"),
    [
        (["3", " "], {}, r"sentences\[1\] is ' ': give a string"),
        (["3", "\udc00"], {}, r"sentences\[1\]: '.udc00' contains half of a surrogate pair"),
        ([None], {}, r"sentences\[0\] is None: give a string"),
        (["3"], {"nbest": 2}, "nbest=2 needs a larger beam: set beam_size=2"),
        (["3"], {"nbest": 1.5}, "nbest=1.5: give a whole number"),
        (["3"], {"batch_size": 0}, "batch_size=0: give a whole number"),
        (["3"], {"prefixes": (each for each in "45")}, "2 prefixes for 1 sentences"),
        (["3"], {"beam_size": 0}, "search.beam_size=0: must be a whole number ≥ 1"),
    ],
)
def test_unusable_arguments_of_translate_raise_one_line(
    model: attnlab.Model, sentences: list[str], search: dict[str, int], message: str
) -> None:
    with pytest.raises(attnlab.UserError, match=message):
        model.translate(sentences, **search)


def test_attention_of_a_translation_equals_that_of_the_search(model: attnlab.Model) -> None:
    for found in model.translate(SOURCES, beam_size=2):
        forced = model.attention(found.source, found.hypothesis)
        for name in ("hypothesis", "tokens", "source_tokens"):
            assert getattr(forced, name) == getattr(found, name)
        assert forced.weights == pytest.approx(found.weights, abs=1e-5)
        assert forced.score == pytest.approx(found.score, abs=1e-5)


def test_explanations_of_a_translation(trained: Run, model: attnlab.Model) -> None:
    attended = model.attention("3 4 5", "5 4")
    for method in ("gradient", "integrated_gradients", "erasure"):
        explained = model.explain("3 4 5", "5 4", method)
        assert (explained.tokens, explained.score) == (attended.tokens, attended.score)
        assert explained.weights.shape == (3, 3)
        assert method == "erasure" or explained.weights.sum(axis=1) == pytest.approx([1] * 3, abs=1e-5)
    with pytest.raises(UserError, match="Unknown method 'saliency': choose from gradient"):
        model.explain("3 4 5", "5 4", "saliency")
    with pytest.raises(UserError, match="An ensemble has no explanations"):
        attnlab.load([trained, trained]).explain("3 4 5", "5 4")


def test_scores_of_translations_equal_those_of_the_search(model: attnlab.Model) -> None:
    predictions = model.translate(SOURCES, beam_size=2, nbest=2, length_penalty=0)
    scores = model.score([(found.source, found.hypothesis) for found in predictions], batch_size=3)
    for found, score in zip(predictions, scores, strict=True):
        assert score.tokens == found.tokens
        assert len(score.token_log_probabilities) == len(score.tokens)
        assert score.log_probability == pytest.approx(found.score, abs=1e-4)
    with pytest.raises(attnlab.UserError, match=r"pairs\[0\] is '': give a string"):
        model.score([("", "3")])
    with pytest.raises(attnlab.UserError, match=r"pairs\[0\] is '34': give a source and its translation"):
        model.score(("34", "43"))


def test_probabilities_of_outputs_too_improbable_for_a_float_have_shares(model: attnlab.Model) -> None:
    found = model.translate("3 4 5", beam_size=3, nbest=3, min_length=1200, max_length=1200)
    assert found[0].p == 0
    assert sum(each.p_beam for each in found) == pytest.approx(1, abs=2e-4)
    assert model.translate("3", min_length=1200, max_length=1200)[0].p_beam == 1


def test_loading_a_model_draws_no_random_numbers(trained: Run) -> None:
    state = torch.random.get_rng_state()
    attnlab.load(trained)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_progress_bar_is_shown_unless_it_is_turned_off(
    model: attnlab.Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attnlab.training.model.PROGRESS_DELAY", 0)
    for settings, is_shown in (({}, True), ({"progress": True}, True), ({"progress": False}, False)):
        for work in (model.translate, model.score):
            work([("3 4", "4 3")] if work == model.score else "3 4", **settings)
            assert ("1/1" in capsys.readouterr().err) == is_shown


def test_unknown_tokens_of_given_translations_keep_their_spelling(tmp_path: Path) -> None:
    model = attnlab.load(write_checkpoint(tmp_path))
    (score,) = model.score([("horse", "horse zebra")])
    assert score.tokens == ["horse", "<unk:zebra>", "<eos>"]
    attended = model.attention("yak horse", "horse zebra")
    assert (attended.source_tokens, attended.tokens) == (["<unk:yak>", "horse"], score.tokens)
    assert attended.weights.shape == (3, 2)


def test_ensemble_of_a_run_with_itself_equals_the_run(trained: Run, model: attnlab.Model) -> None:
    ensemble = attnlab.load([trained.directory, str(trained.best)])
    for one, two in zip(model.translate(SOURCES), ensemble.translate(SOURCES), strict=True):
        assert one.hypothesis == two.hypothesis
        assert one.weights == pytest.approx(two.weights, abs=1e-5)
    with pytest.raises(attnlab.UserError, match="No run to load"):
        attnlab.load([])
    with pytest.raises(attnlab.UserError, match="does not exist"):
        attnlab.load("nowhere")


def test_order_of_members_that_copy_and_others_changes_nothing(tmp_path: Path) -> None:
    readouts = ("softmax", "pointer_generator")
    plain, copying = (write_checkpoint(tmp_path / name, f"readout={name}") for name in readouts)
    pairs = [(text, " ".join(reversed(text.split()))) for text in sentences(4)]
    models = [attnlab.load(members) for members in (plain, copying, [plain, copying], [copying, plain])]
    for plain, copied, both, again in zip(*(model.score(pairs) for model in models), strict=True):
        members = [plain.token_log_probabilities, copied.token_log_probabilities]
        expected = [math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(*members, strict=True)]
        assert both.token_log_probabilities == pytest.approx(expected, abs=1e-4)
        assert again.token_log_probabilities == pytest.approx(expected, abs=1e-4)


def test_members_that_end_sources_differently_are_refused(tmp_path: Path) -> None:
    members = [write_checkpoint(tmp_path / each, f"batching.source_eos={each}") for each in ("true", "false")]
    with pytest.raises(UserError, match=r"cannot be ensembled: they differ in batching\.source_eos"):
        attnlab.load(members)


def test_evaluate_returns_what_it_writes(trained: Run) -> None:
    (evaluation,) = attnlab.evaluate(trained)
    expected = {name: value for name, value in trained.read_result()["metrics"].items() if "test/" in name}
    assert evaluation.result["metrics"] == pytest.approx(expected)
    assert json.loads((evaluation.folder / "result.json").read_text()) == evaluation.result
    assert evaluation.result["sentences"] == evaluation.total_sentences == 20  # inputs of 21 pairs
    (other,) = attnlab.evaluate([trained.directory, trained.best], ["search.beam_size=2"], split="val")
    assert (other.split, other.total_sentences) == ("val", 18)  # inputs of 20 pairs
    assert other.folder.parent == evaluation.folder.parent != other.folder
    with pytest.raises(UserError, match="split='tset'"):
        attnlab.evaluate(trained, split="tset")


LATE = {"wandb", "tensorboard", "pandas", "onnx", "jinja2.environment", "attnlab.cli.bench"}
"""Modules that a training imports only where it uses them."""


@pytest.mark.slow
def test_files_of_another_split_than_the_evaluated_one_are_refused(trained: Run) -> None:
    with pytest.raises(UserError, match="split=val, but files of other splits are given"):
        attnlab.evaluate(trained, ["data.test=a.tsv"], split="val")


def test_evaluate_prints_nothing_of_lightning_and_training_imports_other_packages_late(trained: Run) -> None:
    code = (
        "import sys, attnlab.training.recipe; assert 'lightning' in sys.modules\n"
        f"early = {LATE} & {{*sys.modules}}; assert not early, early\n"
        f"import attnlab; attnlab.evaluate({str(trained.directory)!r}, ['trainer.accelerator=cpu'])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("trust", ["cosine", ["cosine"]])
def test_evaluate_accepts_one_trusted_name_or_several(
    trust: str | list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object, trusted: list[str]) -> None:
        raise UserError(f"trusted: {trusted}")

    monkeypatch.setattr("attnlab.api.evaluation.load_model", refuse)
    monkeypatch.setattr(sys, "path", [*sys.path])
    checkpoint = tmp_path / "best.ckpt"
    checkpoint.touch()
    with pytest.raises(UserError, match=r"^trusted: \['cosine'\]$"):
        attnlab.evaluate(checkpoint, trust=trust)


def test_prediction_is_drawn_in_a_notebook(model: attnlab.Model) -> None:
    (prediction,) = model.translate("3 4 5")
    assert repr(prediction).startswith(f"Prediction({prediction.hypothesis!r}, score=-")
    assert [label.get_text() for label in prediction.plot().axes[0].get_xticklabels()] == ["3", "4", "5"]
    shown = prediction._repr_html_()
    assert "3 4 5 → " in shown
    assert "data:image/png;base64," in shown


def test_data_frames_of_runs_and_curves(trained: Run) -> None:
    frame = attnlab.results(trained.directory.parent)
    assert frame.loc[0, "variant"] == "additive"
    assert frame.loc[0, "encoder.size"] == 16
    assert frame.loc[0, "test/exact_match"] == trained.read_result()["metrics"]["test/exact_match"]
    assert attnlab.load(frame.loc[0, "directory"]).config.encoder.size == 16
    curves = attnlab.history(trained)
    assert curves.index.name == "step"
    assert len(curves["val/loss"].dropna()) == 2
    assert len(curves["test/exact_match"].dropna()) == 1
    assert isinstance(curves, pd.DataFrame)
