"""Evaluation of trained runs, with their own or with changed data, search or attention weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from omegaconf import DictConfig

from attnlab.api import evaluation_data
from attnlab.api.model import RunPath, attention_replaced, locate_all, trusted_names
from attnlab.config.checks import check_settings
from attnlab.config.compose import apply_overrides, as_list
from attnlab.config.construct import construct
from attnlab.config.options import CHANGEABLE
from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.digests import are_seen
from attnlab.data.tokenization.vocabularies import references
from attnlab.errors import UsageError, UserError
from attnlab.explain.scorecard import FILE, Score
from attnlab.files.predictions import Prediction
from attnlab.files.run_directory import Run
from attnlab.files.run_identity import short_hash
from attnlab.files.writing import check_writable, write_json
from attnlab.jobs.logs import silent_lightning
from attnlab.metrics import registry
from attnlab.metrics.errors import Errors, find_errors, groups_of
from attnlab.metrics.registry import LengthScores, score, score_by_length
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.interventions import has_weights
from attnlab.nn.decoders import Decoder
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.report.curves import plot_curves
from attnlab.report.errors import error_figures
from attnlab.report.files import save_png_and_svg
from attnlab.report.style import variant_styles
from attnlab.training import build, components
from attnlab.training.callbacks.outputs import Predictions
from attnlab.training.models import load_model
from attnlab.training.module import Seq2SeqModule
from attnlab.training.own_parts import warn_of_changed_code

FIXED = ("batching.source_eos",)
"""Settings of `CHANGEABLE` groups that determine the inputs of the network, and so cannot change."""

KEPT_WEIGHTS = 10_000
"""Number of sentences whose attention weights are kept, to find the source tokens of errors."""

Metrics = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Evaluation of one split.

    Attributes:
        explanations: scorecard of the attention weights as explanations; empty without the group `explain`.
    """

    split: str  # "val", "test" or "test/NAME"
    folder: Path  # the folder of its files
    total_sentences: int  # number of sentences of the split, of which `result["sentences"]` were decoded
    result: dict[str, Any]  # content of result.json in the folder
    by_length: list[LengthScores]  # the metrics for ranges of source lengths
    explanations: dict[str, Score]
    errors: Errors | None  # confusions, wrong outputs and calibration; None without references
    of_words: bool  # whether sources are words, as sequences of letters


def evaluate(
    runs: RunPath | Sequence[RunPath],
    overrides: Sequence[str] = (),
    *,
    split: str | None = None,
    trust: str | Sequence[str] = (),
) -> list[Evaluation]:
    """Evaluate a trained run, as `attnlab evaluate` does, and write the results into its directory.

    Args:
        runs: a run or a checkpoint file; several are ensembled.
        overrides: settings to change, such as `["search.beam_size=5"]`; see `CHANGEABLE`.
        split: "val" or "test"; the test split by default, or the validation split if there is none.
        trust: see `attnlab.load`.

    Returns:
        One evaluation, or one for each named test set.

    Raises:
        UserError: if a run cannot be read, a setting cannot change, or the split does not exist.
    """
    overrides = as_list(overrides)
    if split not in (None, "val", "test"):
        raise UsageError(f'split={split!r}: there are "val" and "test", which has all named test sets')
    members = locate_all(runs)
    run = members[0][0]
    paths = [path for _, path in members]
    trained, vocabularies, network, records = load_model(paths, trusted_names(trust))
    trained = evaluation_data.find_data(trained, run)
    given, other_overrides = evaluation_data.separate(trained, overrides)
    config = apply_overrides(trained, other_overrides)
    _refuse_fixed(overrides)
    check_settings(config)

    changed_code = warn_of_changed_code(run.read_result().get("code"), trained)
    split = split or next((name for name in ("test", "val") if name in given.files), None)
    if split not in (None, *given.files) and given.files.keys() & {"val", "test"}:
        raise UsageError(f"split={split}, but files of other splits are given: {', '.join(overrides)}")
    if split in given.files:
        metrics = tuple(dict.fromkeys((*records[0]["metrics"], *(config.data.get("metrics") or ()))))
        corpus = evaluation_data.read(config, given, vocabularies, metrics=metrics)
    else:
        corpus = build.build_corpus(config)
    if split == "test" and not corpus.test_splits:
        raise UsageError("This corpus has no test split: evaluate the validation split with --split val")
    splits = ("val",) if split == "val" else corpus.test_splits or ("val",)
    setup = _Setup(
        config=config,
        data=components.build_data(config, corpus, vocabularies),
        module=components.build_module(config, network, vocabularies, corpus),
        members=members,
        training_sources=torch.unique(torch.cat([record["training_sources"] for record in records])),
        overrides=overrides,
        changed_code=changed_code,
        explain=_build_scorecard(config, network),
    )
    interventions = build.build_interventions(config, network)
    evaluation_data.check_unchanged(overrides, records[0]["data"], corpus, vocabularies, splits)
    # One intervention replaces the attention everywhere
    if config.get("attention_override") in interventions:
        setup.decoder.attention = interventions.pop(config.attention_override)
    return [_evaluate_split(setup, name, interventions) for name in splits]


@dataclass(frozen=True, kw_only=True)
class _Setup:
    """The objects of an evaluation, for all of its splits."""

    config: DictConfig
    data: Seq2SeqData
    module: Seq2SeqModule
    members: list[tuple[Run, Path]]
    training_sources: torch.Tensor  # hashes of those of all members, [N]
    overrides: list[str]
    changed_code: list[str]  # parts whose code changed after the training
    explain: Callable[..., dict[str, Score]] | None  # of the model and pairs

    @property
    def decoder(self) -> Decoder:
        """The decoder of a single network: ensembles have neither interventions nor explanations."""
        assert isinstance(self.module.network, Seq2Seq)
        return self.module.network.decoder

    @property
    def changes(self) -> list[str]:
        """The overrides, and the name of a checkpoint other than the best."""
        run, checkpoint = self.members[0]
        return self.overrides if checkpoint == run.best else [*self.overrides, checkpoint.name]

    def folder(self, split: str) -> Path:
        changes = [*self.changes, *(str(path) for _, path in self.members[1:])]
        name = split.replace("/", "-") + (f"-{short_hash(sorted(changes))}" if changes else "")
        return self.members[0][0].directory / "evaluations" / name

    def decode(self, split: str, folder: Path) -> Metrics:
        """Decode a split in one process, write the predictions into the folder, and return the metrics."""
        with silent_lightning():
            trainer = components.quiet_trainer(
                self.config, devices=1, num_nodes=1, strategy="auto", callbacks=[Predictions(folder)]
            )
            run_split = trainer.validate if split == "val" else trainer.test
            return dict(run_split(self.module, datamodule=self.data, verbose=False)[0])


def _evaluate_split(setup: _Setup, split: str, interventions: dict[str, Attention]) -> Evaluation:
    """Decode and score a split, also under each intervention, and write the results."""
    folder, module, data = setup.folder(split), setup.module, setup.data
    check_writable(folder / "result.json")
    if split != "val":
        data.test_split = split
    module.kept_weights = KEPT_WEIGHTS
    metrics = setup.decode(split, folder)
    pairs, inputs = data.pairs(split), data.examples(split).inputs
    indices = [output.index for output in module.outputs]  # trainer.limit_test_batches omits some
    scored = [pairs[position] for position in np.flatnonzero(np.isin(inputs, indices)).tolist()]
    decoded = [pairs[index] for index in indices]
    seen = are_seen(decoded, setup.training_sources.numpy(), data.vocabularies.source).tolist()
    words = [output.columns[0] for output in module.outputs]
    lengths = data.vocabularies.source.encode_all(words).lengths.tolist()
    result = {
        "checkpoint": str(setup.members[0][1]),
        "ensemble_with": [str(path) for _, path in setup.members[1:]],
        "overrides": setup.overrides,
        "changed_code": setup.changed_code,
        "split": split,
        "sentences": len(decoded),
        "seen_in_training": sum(seen),
        "metrics": metrics,
        "known_and_unknown": {},
        "by_length": [],
        "signatures": {},
        "undefined": {
            name: reason for name, reason in module.undefined.items() if registry.split(name) == split
        },
        "references": references(scored, data.vocabularies),
    }
    by_length, errors = [], None
    if not module.is_covered:
        by_length = score_by_length(module.texts, lengths, module.text_metrics)
        save_png_and_svg(_curves(by_length), folder / "by_length")
        errors = _find_errors(module, lengths, seen, folder / "errors")
        result["known_and_unknown"] = _score_by_seen(module, seen)
        result["by_length"] = [row._asdict() for row in by_length]
        result["signatures"] = registry.signatures(module.text_metrics, module.texts)
    explanations = {}
    if setup.explain is not None:
        firsts = [pairs[first] for first in np.unique(inputs).tolist()]
        explanations = setup.explain(module.model(module.device), firsts)
        scores = {name: score._asdict() for name, score in explanations.items()}
        write_json(folder / FILE, {"split": split, "overrides": setup.changes, "scores": scores})
    for name, attention in interventions.items():
        with attention_replaced(setup.decoder, attention):
            values = setup.decode(split, folder / name)
        # A network whose weights are all 0 has no attention metrics
        drops = {metric: metrics[metric] - value for metric, value in values.items() if metric in metrics}
        result.setdefault("attention_override", {})[name] = {"metrics": values, "drops": drops}
    write_json(folder / "result.json", result)
    return Evaluation(
        split=split,
        folder=folder,
        total_sentences=len(np.unique(inputs)),
        result=result,
        by_length=by_length,
        explanations=explanations,
        errors=errors,
        of_words=setup.config.tokenizer._target_.endswith(".characters"),
    )


def _build_scorecard(config: DictConfig, network: TranslationModel) -> Callable[..., dict[str, Score]] | None:
    if config.get("explain") is None:
        return None
    if not isinstance(network, Seq2Seq):
        raise UsageError("explain needs a single network: give one run")
    if not has_weights(network.decoder.attention):
        raise UserError(
            "explain: this network has no attention weights; choose a run with another mechanism, such as "
            "attention=additive"
        )
    return partial(construct(config.explain), seed=config.seed)


def _refuse_fixed(overrides: Sequence[str]) -> None:
    for override in overrides:
        key = override.partition("=")[0]
        if key.partition(".")[0] not in CHANGEABLE or key in FIXED:
            raise UsageError(
                f"{override}: {key} cannot change after training: train another run with it. Settings that "
                f"can change: {', '.join(sorted(CHANGEABLE))}"
            )


def _score_by_seen(module: Seq2SeqModule, seen: Sequence[bool]) -> dict[str, Metrics]:
    """Compute the text metrics of outputs with known and with unknown sources; empty if all are alike."""
    outputs: dict[str, list[Prediction]] = {"known": [], "unknown": []}
    for output, is_known in zip(module.texts.predictions, seen, strict=True):
        outputs["known" if is_known else "unknown"].append(output)
    if not all(outputs.values()):
        return {}
    texts = {name: replace(module.texts, predictions=part) for name, part in outputs.items()}
    return {name: score(part, module.text_metrics).values for name, part in texts.items()}


def _find_errors(module: Seq2SeqModule, lengths: Sequence[int], seen: Sequence[bool], folder: Path) -> Errors:
    """Find the errors of the decoded sentences, and write their tables and figures into the folder."""
    groups = groups_of(module.outputs, lengths, seen)
    errors = find_errors(module.outputs, module.texts.tokenize, groups)
    errors.write(folder)
    curves = {
        "calibration": (errors.calibration[["confidence", "accuracy"]], ("confidence", "share right")),
        "found": (errors.found, ("share of outputs checked, least confident first", "share of errors found")),
    }
    for name, (points, (x_label, y_label)) in curves.items():
        series = {name: [*points.itertuples(index=False, name=None)], "diagonal": [(0, 0), (1, 1)]}
        save_png_and_svg(plot_curves(series, x_label=x_label, y_label=y_label), folder / name)
    for drawn in error_figures({"": errors}, variant_styles([""])):
        save_png_and_svg(drawn.figure, folder / drawn.name.removeprefix("errors-"))
    return errors


def _curves(by_length: Sequence[LengthScores]) -> Figure:
    """Plot every metric against the middle of each range of lengths."""
    series = {
        name: [
            ((row.shortest + row.longest) / 2, registry.metric(name).of_100(score))
            for row in by_length
            if (score := row.scores[name]) is not None
        ]
        for name in by_length[0].scores
    }
    return plot_curves(series, x_label="source length, in tokens", y_label="score, of 100")
