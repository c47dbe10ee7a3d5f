"""Training with the functions of a student in place of attnlab's own parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from lightning import seed_everything
from torch import Tensor

from attnlab.config.compose import compose_run
from attnlab.data.datamodule import Seq2SeqData
from attnlab.files.predictions import Prediction
from attnlab.jobs.logs import quieten_lightning
from attnlab.lesson.exercises import exercises
from attnlab.nn.attention import Additive, Final
from attnlab.nn.decoders import BahdanauDecoder, DecoderOutput, DecoderState
from attnlab.nn.readout import PointerGenerator
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training import build, components
from attnlab.types import EOS, Memory

Functions = Mapping[str, Callable[..., Any]]

SETTINGS = [
    "data.symbols=5",
    "data.train_lengths=[2,5]",
    "data.val_lengths=[2,5]",
    "data.test_lengths=[2,5]",
    "data.train_size=800",
    "data.val_size=20",
    "data.test_size=100",
    "encoder.cell=gru",
    "decoder.cell=gru",
    "embedding.size=16",
    "encoder.size=16",
    "decoder.size=32",
    "attention_size=32",
    "batching.batch_size=16",
    "optimizer.lr=0.01",
    "trainer.max_epochs=12",
    "trainer.check_val_every_n_epoch=12",
    "trainer.limit_val_batches=1",
    "trainer.accelerator=cpu",
    "search.max_length=8",
    "logger=none",
    "fused=false",
]
"""A network that learns to reverse short sequences in seconds."""

CHAPTERS = {
    1: ["attention=final", "bridge=zero"],
    7: ["data.task=copy", "data.symbols=30", "readout=pointer_generator", "tokenizer=whitespace"],
}
"""Further settings of single chapters."""


@dataclass(frozen=True)
class Trained:
    """A trained network on the test sequences."""

    exact_match: float  # share of the outputs that are exactly right
    predictions: list[Prediction]  # the outputs, with their attention weights


def train(chapter: int, *functions: Callable[..., Any], settings: list[str] | None = None) -> Trained:
    """Train a small network with the functions of a student, and decode the test sequences.

    Functions of later chapters are ignored. A part whose function is not given is attnlab's own.

    Args:
        chapter: number of the chapter, 1 to 7.
        *functions: functions of the exercises, in any order.
        settings: further settings, as on the command line.
    """
    exercises(chapter)
    given = {function.__name__: function for function in functions}
    mine = {
        exercise.name: given[exercise.name]
        for number in range(1, chapter + 1)
        for exercise in exercises(number)
        if exercise.name in given
    }
    if chapter > 1:
        mine.pop("final_state", None)
    config = compose_run([*SETTINGS, *CHAPTERS.get(chapter, []), *(settings or [])])
    quieten_lightning()
    seed_everything(config.seed, verbose=False)
    torch.set_num_threads(1)  # a second one gains nothing here, and loses much where students share the cores
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    data = components.build_data(config, corpus, vocabularies)
    network = build.build_network(config, vocabularies)
    _insert(network, mine)
    module = components.build_module(config, network, vocabularies, corpus)
    module.kept_weights = len(corpus.test)
    trainer = components.quiet_trainer(config)
    trainer.fit(module, datamodule=data)
    scores = trainer.test(module, datamodule=data, verbose=False)[0]
    exact = scores["test/exact_match"]
    if "greedy" in mine:
        exact = _decode(network.eval(), data, mine["greedy"], config.search.max_length)
    return Trained(exact, module.outputs)


def _insert(network: Seq2Seq, functions: Functions) -> None:
    """Replace the parts of a network that call the functions of a student; their weights stay."""
    for part, classes in (
        (network.decoder.attention, (StudentFinal, StudentAdditive)),
        (network.decoder, (StudentDecoder,)),
        (network.readout, (StudentPointer,)),
    ):
        for student in classes:
            if isinstance(part, student.__bases__[0]) and functions.keys() & student.USES:
                part.__class__ = student
                part.functions = functions  # type: ignore[assignment]


def _decode(network: Seq2Seq, data: Seq2SeqData, greedy: Callable[..., list[int]], max_length: int) -> float:
    """Decode the test sequences, one by one, and return the share of exact matches."""
    exact, count = 0, 0
    for batch in data.test_dataloader():
        for row in range(len(batch.source)):
            one, length = batch.select(torch.tensor([row])), int(batch.source_lengths[row])
            copy_ids = None if one.copy_ids is None else one.copy_ids[:, :length]
            one = one._replace(source=one.source[:, :length], copy_ids=copy_ids)
            with torch.no_grad():
                encoded, state = network.encode(one)

                def step(token: int, state: Any, encoded: Any = encoded) -> tuple[Tensor, Any]:
                    logits, _, state = network.step(torch.tensor([[token]]), state, encoded)
                    return logits[0, 0].softmax(dim=-1), state

                tokens = greedy(step, state, max_length)
            target = one.target[0, 1:].tolist()
            exact += [*tokens, EOS] == target[: target.index(EOS) + 1]
            count += 1
    return exact / count


class StudentFinal(Final):
    """The fixed context vector of chapter 1."""

    USES = frozenset({"final_state"})
    functions: Functions

    def project(self, memory: Memory) -> Tensor:
        vector: Tensor = self.functions["final_state"](memory.states, memory.mask.sum(dim=1))  # [B, D]
        return vector[:, None]


class StudentAdditive(Additive):
    """Additive attention with the score, the softmax and the context of a student."""

    USES = frozenset({"score", "masked_softmax", "context", "hard_weights"})
    functions: Functions

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        if "score" not in self.functions:
            return super().score(query, keys, state)
        projected = self.query(query)[:, 0]  # [B, A]
        scores: Tensor = self.functions["score"](projected, keys, self.energy.weight[0])  # [B, S]
        return scores[:, None]

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        name = "hard_weights" if "hard_weights" in self.functions and not self.training else "masked_softmax"
        if name not in self.functions:
            return super().weigh(query, memory, keys, state)
        scores = self.score(query, keys, state)[:, 0]  # [B, S]
        weights: Tensor = self.functions[name](scores, memory.mask)  # [B, S]
        return weights[:, None], state

    def context(self, weights: Tensor, memory: Memory) -> Tensor:
        if "context" not in self.functions:
            return super().context(weights, memory)
        context: Tensor = self.functions["context"](weights[:, 0], memory.states)  # [B, D]
        return context[:, None]


class StudentDecoder(BahdanauDecoder):
    """Bahdanau's decoder with the step of a student."""

    USES = frozenset({"decoder_step"})
    functions: Functions

    def project(self, embedded: Tensor) -> Tensor:
        return embedded

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        def attend(query: Tensor) -> tuple[Tensor, Tensor]:
            context, weights, _ = self.attention(query[:, None], memory, keys, None)
            return context[:, 0], weights[:, 0]

        new, context, weights = self.functions["decoder_step"](
            inputs[:, 0], state.layers[0][0][:, 0], attend, self.cells.cells[0]
        )
        output = DecoderOutput(new[:, None], context[:, None], weights[:, None])
        return output, state._replace(layers=((new[:, None],),))


class StudentPointer(PointerGenerator):
    """A readout that copies, with the probabilities of a student."""

    USES = frozenset({"copy_probabilities"})
    functions: Functions

    def forward(self, features: Tensor, weights: Tensor, copy_ids: Tensor | None) -> Tensor:
        assert copy_ids is not None
        gate = torch.sigmoid(features[..., -1:])  # [..., 1]
        generated = self.generator(features[..., :-1]).softmax(dim=-1)  # [..., V]
        generated = F.pad(generated, (0, weights.size(-1)))  # [..., V + S]
        flat = [part.reshape(-1, part.size(-1)) for part in (generated, gate, weights, copy_ids)]
        p: Tensor = self.functions["copy_probabilities"](*flat)  # [N, V + S]
        return (p + self.FLOOR).log().view(generated.shape)
