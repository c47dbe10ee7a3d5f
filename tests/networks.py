"""Tiny networks and batches for the tests. Sizes are distinct primes, so that swapped axes fail."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import yaml
from hydra.utils import get_class
from torch import Tensor, nn

from attnlab.config.options import CONF
from attnlab.data.examples import Sequences
from attnlab.data.mapped import Store
from attnlab.data.tokenization.tokenizer import Rows
from attnlab.decoding.search import greedy
from attnlab.fast import accelerate
from attnlab.nn import attention as variants
from attnlab.nn.attention import Attention
from attnlab.nn.bridge import LinearBridge
from attnlab.nn.decoders import BahdanauDecoder, Decoder, LuongDecoder
from attnlab.nn.embedding import TokenEmbedding
from attnlab.nn.encoders import Encoder, RecurrentEncoder
from attnlab.nn.readout import PointerGenerator, Readout
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.types import EOS, PAD, SOS, UNK, Batch, Memory

SOURCE_WORDS, TARGET_WORDS = 23, 19
SOURCE_WIDTH, TARGET_WIDTH, UNITS, STATE, ENERGY = 3, 5, 2, 7, 13


def sequences(rows: Sequence[Sequence[int]]) -> Sequences:
    """Return sequences of token ids in memory."""
    store = Store()
    Sequences.append(store, "rows", Rows.of(rows), np.int32)
    return Sequences(store, "rows")


class Coverage(Attention):
    """A mechanism with state: e_j = sᵀ W h_j minus the sum of the previous α_j."""

    stateful = True

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size)
        self.key = nn.Linear(memory_size, query_size, bias=False)

    def project(self, memory: Memory) -> Tensor:
        return self.key(memory.states)

    def begin(self, memory: Memory) -> Tensor:
        return memory.states.new_zeros(memory.states.size(0), 1, memory.states.size(1))  # [B, 1, S]

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        return torch.bmm(query, keys.transpose(1, 2)) - state  # [B, Q, S]

    def advance(self, state: Tensor, weights: Tensor) -> Tensor:
        return state + weights


def read_options(group: str) -> dict[str, dict[str, Any]]:
    """Return the settings of each option of a group of `conf/`, by the name of its class.

    Settings that refer to others of the configuration (`${…}`) are left out, except sizes.
    """
    options = {}
    for path in sorted((CONF / group).glob("*.yaml")):
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        settings.pop("defaults", None)
        kept = {key: value for key, value in settings.items() if not str(value).startswith("${")}
        kept |= {"size": ENERGY} if "size" in settings else {}
        options[settings["_target_"].rpartition(".")[2]] = kept
    return options


OPTIONS = read_options("attention")
ATTENTIONS: dict[str, type[Attention]] = {
    **{name: get_class(settings["_target_"]) for name, settings in OPTIONS.items()},
    "Coverage": Coverage,
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Additive": {"size": ENERGY, "bias": True},
    "Concat": {"size": ENERGY, "bias": True},
    "CoverageSee": {"size": ENERGY},
    "CoverageTu": {"size": ENERGY, "max_fertility": 2.0},
    "Differential": {"score": partial(variants.Additive, size=ENERGY)},
    "Forward": {"score": partial(variants.Additive, size=ENERGY)},
    "Hard": {"score": partial(variants.Additive, size=ENERGY)},
    "LocalM": {"window": 2},
    "Markov": {"score": partial(variants.Additive, size=ENERGY), "window": 2},
    "LocalP": {"size": ENERGY, "window": 2},
    "Location": {"max_length": 3},
    "LocationSensitive": {"size": ENERGY, "channels": 2, "kernel": 3},
    "Mixture": {"size": ENERGY, "components": 2},
    "MILk": {"size": ENERGY, "noise": 0.0},
    "MoChA": {"size": ENERGY, "chunk": 3, "noise": 0.0},
    "Monotonic": {"size": ENERGY, "noise": 0.0},
    "Sigmoid": {"score": partial(variants.Additive, size=ENERGY)},
    "Sink": {"score": partial(variants.Additive, size=ENERGY)},
    "MultiHead": {"size": 6, "heads": 3, "score": partial(variants.Additive, size=ENERGY)},
}
"""Constructor arguments besides the two sizes, of mechanisms that need others than those of their option."""

DECIDING = {"Hard", "MILk", "MoChA", "Monotonic"}
"""In evaluation these select one position, and no gradient reaches their scores."""

READOUT_OF_STATES = partial(Readout, parts=("state",))
ORDERS = ("bahdanau", "luong", "luong with input feeding")
MIXED = [(ORDERS[(i + j) % 3], name) for i, name in enumerate(ATTENTIONS) for j in range(2)]
"""Every mechanism in two orders: one that attends step by step, and one that attends to a whole target."""


def make_attention(name: str, query_size: int, memory_size: int) -> Attention:
    settings = {key: value for key, value in OPTIONS.get(name, {}).items() if not key.startswith("_")}
    arguments = ARGUMENTS.get(name, settings)
    return ATTENTIONS[name](query_size=query_size, memory_size=memory_size, **arguments)


def same_sizes(name: str) -> bool:
    """Return whether a mechanism needs queries of the size of the memory."""
    return issubclass(ATTENTIONS[name], variants.Dot)


def attend(attention: Attention, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Return context and weights of the first target position, for queries [B, Q, H]."""
    context, weights, _ = attention(query, memory, attention.project(memory), attention.begin(memory))
    return context, weights


def walk(attention: Attention, queries: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Attend step by step: contexts [B, T, D] and weights [B, T, S] of queries [B, T, H]."""
    keys, state = attention.project(memory), attention.begin(memory)
    contexts, weights = [], []
    for query in queries.split(1, dim=1):
        context, attended, state = attention(query, memory, keys, state)
        contexts.append(context)
        weights.append(attended)
    return torch.cat(contexts, dim=1), torch.cat(weights, dim=1)


def random_memory(lengths: Sequence[int], size: int, *, padding: int = 0) -> Memory:
    """Draw states [B, S, D] of sentences with these lengths, padding included, and its mask."""
    mask = torch.arange(max(lengths) + padding) < torch.tensor(lengths)[:, None]  # [B, S]
    return Memory(torch.randn(*mask.shape, size), mask)


def encode(encoder: Encoder, embedded: Tensor, lengths: list[int]) -> Memory:
    """Encode embeddings [B, S, E], of which the first `lengths` of each row are real."""
    mask = torch.arange(embedded.size(1)) < torch.tensor(lengths)[:, None]  # [B, S]
    memory: Memory = encoder(embedded, torch.tensor(lengths), mask)
    assert memory.mask is mask
    return memory


def randomise(module: nn.Module, spread: float = 1.0) -> None:
    """Set large weights, so that attention and outputs are far from uniform; PAD's embedding stays zero."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-spread, spread)
        for part in module.modules():
            if isinstance(part, nn.Embedding) and part.padding_idx is not None:
                part.weight[part.padding_idx] = 0.0


def assemble(
    encoder: Encoder,
    decoder: Decoder,
    *,
    bridge: Callable[..., nn.Module] = LinearBridge,
    source_vocabulary_size: int = SOURCE_WORDS,
    source_width: int = SOURCE_WIDTH,
    vocabulary_size: int = TARGET_WORDS,
    width: int = TARGET_WIDTH,
    kind: type[Seq2Seq] = Seq2Seq,
    readout: Callable[..., nn.Module] = READOUT_OF_STATES,
) -> Seq2Seq:
    """Build a fast network from any encoder and decoder that implement the abstract classes.

    Args:
        encoder: for embeddings of `source_width`.
        decoder: for embeddings of `width`.
        bridge: its class.
        source_vocabulary_size: size of the source vocabulary.
        source_width: size of the source embedding.
        vocabulary_size: size of the target vocabulary.
        width: size of the target embedding.
        kind: class of the network.
        readout: its class, or a partial of it with its settings.
    """
    network = kind(
        source_embedding=TokenEmbedding(vocabulary_size=source_vocabulary_size, size=source_width),
        encoder=encoder,
        bridge=bridge(
            memory_size=encoder.memory_size, encoder_layers=encoder.layers, **decoder.state_shape._asdict()
        ),
        target_embedding=TokenEmbedding(vocabulary_size=vocabulary_size, size=width),
        decoder=decoder,
        readout=readout(
            state_size=decoder.output_size,
            context_size=decoder.context_size,
            input_size=width,
            vocabulary_size=vocabulary_size,
        ),
    )
    accelerate(network)
    return network


def make_network(
    *,
    attention: str = "Additive",
    order: str = "bahdanau",
    cell: Any = "lstm",
    layers: int = 1,
    vocabulary_size: int = TARGET_WORDS,
    parts: tuple[str, ...] = ("state", "context", "input"),
    seed: int = 0,
    spread: float = 1.0,
    **recurrence: Any,
) -> Seq2Seq:
    """Build a network in evaluation mode with random weights.

    `recurrence` holds cell settings of both encoder and decoder.
    """
    torch.manual_seed(seed)
    encoder = RecurrentEncoder(input_size=SOURCE_WIDTH, cell=cell, size=UNITS, **recurrence)
    state = encoder.memory_size if same_sizes(attention) else STATE
    options = {
        "input_size": TARGET_WIDTH,
        "attention": make_attention(attention, state, encoder.memory_size),
        "cell": cell,
        "size": state,
        "layers": layers,
        **recurrence,
    }
    decoder: Decoder
    if order == "bahdanau":
        decoder = BahdanauDecoder(**options)
    else:
        without_feeding = {"input_feeding": False} if order == "luong" else {}  # fed by default
        decoder = LuongDecoder(**options, **without_feeding)
    readout = partial(Readout, parts=parts)
    network = assemble(encoder, decoder, vocabulary_size=vocabulary_size, readout=readout)
    randomise(network, spread)
    return network.eval()


def let_copy(network: Seq2Seq, switch: float) -> None:
    """Give a network a readout that copies source words, mostly if `switch`, the bias, is far below 0."""
    network.readout = PointerGenerator(
        state_size=network.decoder.output_size,
        context_size=network.decoder.context_size,
        input_size=network.target_embedding.size,
        vocabulary_size=network.target_embedding.table.num_embeddings,
        parts=["state"],
    )
    nn.init.constant_(network.readout.switch.bias, switch)


def stepwise(network: TranslationModel, batch: Batch, forced: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Decode whole targets with the network's single step, one token at a time.

    The keys are projected once; everything else, including the product with the vocabulary, is computed at
    each step for every sentence, padding or not.

    Args:
        network: whose `step` is called T times.
        batch: the batch with sources and `inputs` [B, T].
        forced: as in `TranslationModel.decode`; None for teacher forcing at every step.

    Returns:
        Logits [B, T, V] and weights [B, T, S].
    """
    encoded, state = network.encode(batch)
    prediction = batch.inputs[:, :1]  # [B, 1]; the first token is SOS for any `forced`
    logits, weights = [], []
    for i, reference in enumerate(torch.split(batch.inputs, 1, dim=1)):
        tokens = reference if forced is None else torch.where(forced[:, i : i + 1], reference, prediction)
        step_logits, step_weights, state = network.step(tokens, state, encoded)  # [B, 1, V], [B, 1, S]
        prediction = EOS + step_logits[..., EOS:].detach().argmax(dim=-1)  # [B, 1]: neither PAD nor SOS
        logits.append(step_logits)
        weights.append(step_weights)
    return torch.cat(logits, dim=1), torch.cat(weights, dim=1)


def make_batch(
    sources: list[list[int]], targets: list[list[int]] | None = None, *, padding: int = 0
) -> Batch:
    """Build a batch from token ids, padded to the longest plus `padding`; targets get SOS and EOS."""
    marked = [[SOS, *target, EOS] for target in targets or [[]] * len(sources)]
    return Batch(
        source=padded(sources, padding),
        source_lengths=torch.tensor([len(source) for source in sources]),
        target=padded(marked, padding),
        indices=torch.arange(len(sources)),
    )


def as_in_torch(weights: Mapping[str, Tensor], prefixes: Mapping[str, str]) -> dict[str, Tensor]:
    """Return weights and biases of a layer of attnlab by the prefixes of torch's names."""
    return {
        f"{theirs}{kind}": weights[f"{ours}{kind}"]
        for theirs, ours in prefixes.items()
        for kind in ("weight", "bias")
    }


def padded(rows: list[list[int]], padding: int = 0) -> Tensor:
    width = max(len(row) for row in rows) + padding
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def random_rows(lengths: list[int], vocabulary_size: int) -> list[list[int]]:
    """Draw rows of ordinary tokens."""
    return [torch.randint(UNK + 1, vocabulary_size, (length,)).tolist() for length in lengths]


def random_batch(source_lengths: list[int], target_lengths: list[int] | None = None) -> Batch:
    """Draw a batch of ordinary tokens; without target lengths, targets are empty."""
    targets = None if target_lengths is None else random_rows(target_lengths, TARGET_WORDS)
    return make_batch(random_rows(source_lengths, SOURCE_WORDS), targets)


def assert_teacher_forcing_equals_steps(network: Seq2Seq, batch: Batch) -> Tensor:
    """Compare logits and weights of a teacher-forced pass with those of single steps; returns the weights."""
    decoded = network(batch)
    logits, weights = stepwise(network, batch)
    torch.testing.assert_close(network.logits(decoded, batch.copy_ids), logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(decoded.weights, weights, rtol=0, atol=1e-5)
    return decoded.weights


def assert_sentences_are_independent(
    network: Seq2Seq, sources: list[list[int]], targets: list[list[int]], *, padding: int = 0
) -> None:
    """Compare logits and weights of each sentence of a padded batch with those of the sentence alone."""
    together = network(make_batch(sources, targets, padding=padding))
    logits = network.logits(together, None)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        alone = network(make_batch([source], [target]))
        T, S = len(target) + 1, len(source)
        torch.testing.assert_close(logits[row, :T], network.logits(alone, None)[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(together.weights[row, :T, :S], alone.weights[0], rtol=0, atol=1e-5)
        assert not together.weights[row, :, S:].any()


def assert_sampled_inputs_are_those_of_greedy_search(network: Seq2Seq, batch: Batch) -> None:
    """Compare the predictions that a decoder reads when it reads no reference with greedy outputs."""
    sampled = network(batch, torch.zeros_like(batch.inputs, dtype=torch.bool))
    choices = EOS + network.logits(sampled, None)[..., EOS:].argmax(dim=-1)  # [B, T]
    outputs = greedy(network, batch, max_length=batch.inputs.size(1) - 1).tokens
    for row, [tokens] in enumerate(outputs):
        assert choices[row, : len(tokens)].tolist() == tokens


def forced_logits(network: Seq2Seq, batch: Batch) -> Tensor:
    """Return the logits of a teacher-forced pass, [B, T, V]."""
    decoded = network(batch)
    return network.readout(decoded.features)
