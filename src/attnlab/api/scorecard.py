"""Scorecard of the attention weights of a trained run as explanations: `attnlab evaluate RUN explain=all`."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from attnlab.config import build
from attnlab.config.options import suggest
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UsageError, UserError
from attnlab.explain import alignment, scorecard
from attnlab.explain.scorecard import MEASURES, Model, Score
from attnlab.files.run_directory import locate_run
from attnlab.files.writing import write_json
from attnlab.nn.attention.interventions import has_weights
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.report.scorecards import FILE
from attnlab.training.models import load_model


def check(config: DictConfig, network: TranslationModel) -> None:
    """Check the settings of `explain` and the network.

    Raises:
        UsageError: if a measure is unknown, or the network is an ensemble.
        UserError: if the network has no attention weights.
    """
    if config.get("explain") is None:
        return
    for measure in _measures(config):
        if measure not in MEASURES:
            near = suggest(str(measure), MEASURES)
            raise UsageError(
                f"Unknown measure {measure!r} in explain.measures.{near} Options: {', '.join(MEASURES)}"
            )
    _explainable(network)


def _measures(config: DictConfig) -> list[str]:
    measures = config.explain.measures
    return [measures] if isinstance(measures, str) else list(measures)


def _explainable(network: TranslationModel) -> Seq2Seq:
    """Return a single network with attention weights; raise `UserError` if it is something else."""
    if not isinstance(network, Seq2Seq):
        raise UsageError("explain needs a single network: give one run")
    if not has_weights(network.decoder.attention):
        raise UserError(
            "explain: this network has no attention weights; choose a run with another mechanism, such as "
            "attention=additive"
        )
    return network


def explain(
    config: DictConfig,
    network: TranslationModel,
    vocabularies: Vocabularies,
    pairs: Sequence[Pair],
    *,
    trust: Sequence[str],
) -> dict[str, Score]:
    """Compute the scorecard on evenly spread sentences of a split, given as pairs.

    Raises:
        UserError: if the run of the other direction or the gold alignments cannot be read.
    """
    settings = config.explain
    chosen = spread(settings.sentences, len(pairs))
    gold = None
    if settings.alignments is not None:
        gold_of_split = alignment.read_gold(settings.alignments, len(pairs))
        gold = [gold_of_split[i] for i in chosen]
    reverse = None
    if settings.reverse is not None:
        other, other_vocabularies, other_network = load_model([locate_run(settings.reverse)[1]], trust)
        reverse = _model(other, other_network, other_vocabularies)
    return scorecard.explain(
        _model(config, network, vocabularies),
        [pairs[i] for i in chosen],
        measures=_measures(config),
        steps=settings.steps,
        epsilon=settings.epsilon,
        seed=config.seed,
        gold=gold,
        reverse=reverse,
    )


def spread(count: int, total: int) -> list[int]:
    """Return at most `count` of the numbers from 0 to `total` - 1, evenly spread."""
    count = min(count, total)
    return [number * total // count for number in range(count)]


def write(
    scores: dict[str, Score], settings: DictConfig, split: str, overrides: list[str], folder: Path
) -> None:
    """Write the scorecard into the folder of an evaluation."""
    record: dict[str, Any] = {
        "split": split,
        "overrides": [text for text in overrides if text.partition("=")[0].partition(".")[0] != "explain"],
        "settings": {key: settings[key] for key in ("sentences", "steps", "epsilon")},
        "scores": {name: score._asdict() for name, score in scores.items()},
    }
    write_json(folder / FILE, record)


def _model(config: DictConfig, network: TranslationModel, vocabularies: Vocabularies) -> Model:
    encode = partial(build.encode_pairs, config, vocabularies)
    return Model(network=_explainable(network), vocabularies=vocabularies, encode=encode)
