"""Trained models as the server offers them: a name, a description, and translation with interventions."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal, get_args

from attnlab.api.model import Model, attention_replaced, load
from attnlab.errors import UserError
from attnlab.explain.attributions import Method
from attnlab.files.predictions import Prediction
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.interventions import INTERVENTIONS, intervene
from attnlab.nn.seq2seq import Seq2Seq

Map = Literal["weights", Method]

MAX_EXPLAINED = 2500
"""Maximum number of cells of a map that is not of weights; erasure of each takes a pass of the network."""


@dataclass(frozen=True)
class Options:
    """Options that all sentences of a batch share."""

    beam_size: int | None = None  # beam size of the search; None for that of the run
    nbest: int = 1  # number of hypotheses per sentence
    intervention: str | None = None  # replacement of the attention weights; None for those of the model
    map: Map = "weights"  # what the maps show: the attention weights, or a method of `attnlab.Model.explain`


@dataclass(frozen=True)
class Source:
    """A sentence to translate, and the text that its translation starts with."""

    text: str
    prefix: str = ""


class ServedModel:
    """A trained model under the name by which requests select it.

    Args:
        name: unique among the models of a server.

    Attributes:
        mechanism: class of the attention mechanism, or "ensemble".
        interventions: attention with replaced weights, by the kind of replacement.
        maps: what its maps can show.
    """

    def __init__(self, name: str, model: Model) -> None:
        self.name = name
        self.model = model
        self.interventions: dict[str, Attention] = {}
        self.maps: tuple[Map, ...] = get_args(Map) if isinstance(model.network, Seq2Seq) else ("weights",)
        network = model.network
        attention = network.decoder.attention if isinstance(network, Seq2Seq) else None
        self.mechanism = "ensemble" if attention is None else type(attention).__name__
        if attention is not None:
            try:
                self.interventions = {
                    kind: intervene(attention, kind, seed=model.config.seed) for kind in INTERVENTIONS
                }
            except ValueError:  # it has no weights to replace
                self.interventions = {}

    def translate(self, options: Options, sources: Sequence[Source]) -> list[list[Prediction]]:
        """Return at most `options.nbest` predictions per source, best first.

        Raises:
            UserError: if a source is refused, such as one with a symbol that the vocabulary lacks, or if a
                map cannot be computed.
        """
        beam_size = max(options.beam_size or self.model.config.search.beam_size, options.nbest)
        with self._intervention(options.intervention):
            predictions = self.model.translate(
                [source.text for source in sources],
                prefixes=[source.prefix for source in sources],
                nbest=options.nbest,
                progress=False,
                beam_size=beam_size,
            )
            shown = [self._explained(prediction, sources, options.map) for prediction in predictions]
        results: list[list[Prediction]] = [[] for _ in sources]
        for prediction in shown:
            results[prediction.index].append(prediction)
        return results

    def _explained(self, prediction: Prediction, sources: Sequence[Source], map: Map) -> Prediction:
        if map == "weights":
            return prediction
        if map not in self.maps:
            raise UserError(f"{self.name} has no map of {map}")
        if len(prediction.tokens) * len(prediction.source_tokens) > MAX_EXPLAINED:
            raise UserError(
                f"A map of {map} has at most {MAX_EXPLAINED:,} cells: give a shorter input, or show the "
                "weights"
            )
        explained = self.model.explain(sources[prediction.index].text, prediction.hypothesis, map)
        return replace(
            prediction,
            tokens=explained.tokens,
            weights=explained.weights,
            probabilities=explained.probabilities,
        )

    def _intervention(self, kind: str | None) -> AbstractContextManager[None]:
        if kind is None:
            return nullcontext()
        network = self.model.network
        if kind not in self.interventions or not isinstance(network, Seq2Seq):
            raise UserError(f"{self.name} has no attention weights that intervention={kind} could replace")
        return attention_replaced(network.decoder, self.interventions[kind])


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names, each repeated one with a number: `["a", "b", "a"]` becomes `["a", "b", "a (2)"]`."""
    return [
        name if (count := names[: place + 1].count(name)) == 1 else f"{name} ({count})"
        for place, name in enumerate(names)
    ]


def load_models(runs: Sequence[str], *, trust: Sequence[str] = ()) -> list[ServedModel]:
    """Load the models of runs or checkpoints, named by variant and seed."""
    models = [load(run, trust=trust) for run in runs]
    names = [f"{model.config.variant}-seed{model.config.seed}" for model in models]
    return [ServedModel(name, model) for name, model in zip(unique_names(names), models, strict=True)]
