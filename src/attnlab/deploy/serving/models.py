"""Trained models as the server offers them: a name, a description, and translation with interventions."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Literal

from attnlab.api.model import attention_replaced, load
from attnlab.errors import UserError
from attnlab.explain.attributions import Method
from attnlab.files.predictions import Prediction
from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.interventions import INTERVENTIONS, intervene
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training.model import Model

Map = Literal["weights", Method]
"""Values of a map: the attention weights, or a method of `attnlab.Model.explain`."""

MAX_EXPLAINED = 2500
"""Maximum number of cells of a map that is not of weights; erasure of each takes a pass of the network."""


class ServedModel:
    """A trained model under the name by which requests select it, unique among the models of a server."""

    def __init__(self, name: str, model: Model) -> None:
        assert isinstance(model.network, Seq2Seq)  # an ensemble has several runs
        self.name = name
        self.model = model
        self.decoder = model.network.decoder
        self.mechanism = type(self.decoder.attention).__name__
        self.interventions: dict[str, Attention] = {}  # with replaced weights
        with suppress(ValueError):  # it has no weights to replace
            for kind in INTERVENTIONS:
                self.interventions[kind] = intervene(self.decoder.attention, kind, seed=model.config.seed)

    def translate(
        self,
        sentences: Sequence[str],
        prefixes: Sequence[str],
        *,
        beam_size: int | None = None,
        nbest: int = 1,
        intervention: str | None = None,
        map: Map = "weights",
    ) -> list[list[Prediction]]:
        """Return at most `nbest` predictions per sentence, best first: see `app.TranslationRequest`.

        Raises:
            UserError: if a sentence is refused, such as one with a symbol that the vocabulary lacks, or if a
                map cannot be computed.
        """
        beam_size = max(beam_size or self.model.config.search.beam_size, nbest)
        with self._intervention(intervention):
            predictions = self.model.translate(
                sentences, prefixes=prefixes, nbest=nbest, progress=False, beam_size=beam_size
            )
            shown = [self._explained(each, sentences[each.index], map) for each in predictions]
        results: list[list[Prediction]] = [[] for _ in sentences]
        for prediction in shown:
            results[prediction.index].append(prediction)
        return results

    def _explained(self, prediction: Prediction, source: str, map: Map) -> Prediction:
        if map == "weights":
            return prediction
        if len(prediction.tokens) * len(prediction.source_tokens) > MAX_EXPLAINED:
            raise UserError(
                f"A map of {map} has at most {MAX_EXPLAINED:,} cells: give a shorter input, or show the "
                "weights"
            )
        explained = self.model.explain(source, prediction.hypothesis, map)
        if explained.tokens != prediction.tokens:
            raise UserError(
                f"A map of {map} reads the output as text, whose tokens are not those of this one, such as "
                "<unk>: show the weights"
            )
        return replace(prediction, weights=explained.weights, probabilities=explained.probabilities)

    def _intervention(self, kind: str | None) -> AbstractContextManager[None]:
        if kind is None:
            return nullcontext()
        if kind not in self.interventions:
            raise UserError(f"{self.name} has no attention weights that intervention={kind} could replace")
        return attention_replaced(self.decoder, self.interventions[kind])


def load_models(runs: Sequence[str], *, trust: Sequence[str] = ()) -> list[ServedModel]:
    """Load the models of runs or checkpoints, named by variant and seed; repeated names get a number."""
    models = [load(run, trust=trust) for run in runs]
    names = [f"{model.config.variant}-seed{model.config.seed}" for model in models]
    counts = [names[: place + 1].count(name) for place, name in enumerate(names)]
    return [
        ServedModel(name if count == 1 else f"{name} ({count})", model)
        for name, count, model in zip(names, counts, models, strict=True)
    ]
