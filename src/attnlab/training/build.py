"""Builders of the objects of a run from its configuration: data, network and search.

Sizes that follow from other sizes are derived here. The builders of what trains them are in
`attnlab.training.components`, since predicting does not need Lightning, whose import takes seconds.
"""

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from attnlab.config.construct import accepted, construct, constructor, report_errors, section
from attnlab.data import digests
from attnlab.data.corpus import Corpus, Pair, Preparation
from attnlab.data.examples import Examples, encode
from attnlab.data.features import feature_ids, pair_with_features
from attnlab.data.mapped import MappedPairs, Store, computed
from attnlab.data.tokenization.tokenizer import Tokenizer, parallel_tokenizers
from attnlab.data.tokenization.vocabularies import Vocabularies, train_vocabularies
from attnlab.decoding.translator import Translator
from attnlab.errors import UsageError, UserError
from attnlab.fast import accelerate
from attnlab.metrics import registry
from attnlab.nn.attention import Attention
from attnlab.nn.attention.interventions import INTERVENTIONS, intervene
from attnlab.nn.decoders import Decoder
from attnlab.nn.embedding import TokenEmbedding
from attnlab.nn.features import Concatenated
from attnlab.nn.marginal import Marginal, MarginalSeq2Seq
from attnlab.nn.readout import PointerGenerator
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.settings import Component, Size

TOKENIZERS = ("tokenizer", "target_tokenizer", "shared_vocabulary")
"""Settings that the vocabularies depend on."""


def build_corpus(config: DictConfig, corpus: Corpus | None = None) -> Corpus:
    """Build the corpus: pairs of raw texts in splits, or of a few training pairs only (`overfit`)."""
    if corpus is None:
        corpus = construct(section(config, "data"))
    assert corpus is not None
    corpus = add_metrics(corpus, metrics=config.data.get("metrics") or ())
    if config.get("overfit") is None:
        return corpus
    pairs = corpus.train[: config.overfit]
    return replace(corpus, train=pairs, val=pairs, test=[], draws=())


def add_metrics(corpus: Corpus, *, metrics: Sequence[str] = ()) -> Corpus:
    """Return a corpus with further metrics of decoded texts.

    Args:
        metrics: scores besides those of every dataset; [wer,ser] replace BLEU, chrF and the edit distance.
    """
    names = tuple(dict.fromkeys((*corpus.metrics, *metrics)))
    for name in names:  # or else an unknown name would be noticed after an epoch
        if not str(name).startswith(registry.CLASSIFICATION):
            registry.function(name)
    return replace(corpus, metrics=names)


def build_preparation(config: DictConfig) -> Preparation:
    """Build the function that turns a source sentence, and a target if there is one, into a pair."""
    if config.data.get("features_column") is not None:
        return pair_with_features
    node = config.data.get("preparation")
    prepare: Preparation = Pair if node is None else construct(node)
    return prepare


def build_vocabularies(config: DictConfig, corpus: Corpus) -> Vocabularies:
    """Train the source and target tokenizers on the training split."""
    target = config.get("target_tokenizer")

    def train() -> Vocabularies:
        return train_vocabularies(
            corpus.train,
            source=constructor(config.tokenizer),
            target=None if target is None else constructor(target),
            shared=config.shared_vocabulary,
            others=[pairs for name, pairs in corpus.splits.items() if name != "train"],
        )

    if not isinstance(corpus.train, MappedPairs):
        return train()

    def compute(store: Store) -> None:
        with parallel_tokenizers():
            sides = json.dumps([tokenizer.to_json() for tokenizer in train()])
        store.append("sides", np.frombuffer(sides.encode(), np.uint8))

    from attnlab.training.own_parts import describe_code  # imports Lightning

    values: Any = OmegaConf.to_container(config, resolve=True)
    settings = {name: values.get(name) for name in TOKENIZERS}
    code = describe_code(OmegaConf.create(settings)).get("parts")
    # The warnings that are kept with the vocabularies are of all splits
    others = [digests.pairs_digest(pairs) for name, pairs in corpus.splits.items() if name != "train"]
    key = {**settings, "parts": code, "others": others}
    store = computed(corpus.train, key, compute, noun="the vocabularies")
    source, *other = map(Tokenizer.from_json, json.loads(store.array("sides").tobytes()))
    return Vocabularies(source, source if config.shared_vocabulary else other[0])


def check_alignments(alignments_path: Any, vocabularies: Vocabularies) -> None:
    """Raise `UserError` if word alignments are given, but a tokenizer splits words."""
    if alignments_path and any(side.splits_words for side in vocabularies):
        raise UserError(
            f"data.alignments_path={alignments_path} aligns words, but the tokenizer splits them: use "
            "tokenizer=whitespace or tokenizer=words"
        )


def copies_source(config: DictConfig) -> bool:
    """Return whether the readout copies source tokens, so that batches must hold their `copy_ids`."""
    target = get_object(config.readout._target_)
    return isinstance(target, type) and issubclass(target, PointerGenerator)


def encode_pairs(config: DictConfig, vocabularies: Vocabularies, pairs: list[Pair]) -> Examples:
    """Encode pairs of texts with the settings of the batching group; given targets are not truncated."""
    batching = config.batching
    return encode(
        pairs,
        vocabularies,
        source_eos=batching.source_eos,
        max_source_length=batching.max_source_length,
        max_target_length=None,
        with_copy_ids=copies_source(config),
    )


def build_network(config: DictConfig, vocabularies: Vocabularies) -> Seq2Seq:
    """Build embeddings, encoder, bridge, attention, decoder and readout."""
    config = match_decoder_size(config, vocabularies, match=config.attention.get("match"))
    source_embedding, target_embedding = _build_embeddings(config, vocabularies)
    encoder_settings = section(config, "encoder")
    encoder = constructor(encoder_settings)(
        input_size=source_embedding.width, **accepted(encoder_settings, tokenizer=vocabularies.source)
    )
    features = construct(
        config.features,
        is_feature=_is_feature(config, vocabularies),
        input_size=source_embedding.width,
        memory_size=encoder.memory_size,
    )
    decoder = _build_decoder(config, encoder.memory_size, target_embedding.width)
    bridge = construct(
        config.bridge,
        memory_size=encoder.memory_size,
        encoder_layers=encoder.layers,
        **decoder.state_shape._asdict(),
    )
    readout = _build_readout(config, decoder, target_embedding)
    with report_errors("the network"):
        encoder.check_bridge(bridge)
        readout.check_decoder(decoder)
    kind = MarginalSeq2Seq if isinstance(readout, Marginal) else Seq2Seq
    network = kind(
        source_embedding=source_embedding,
        encoder=encoder,
        bridge=bridge,
        target_embedding=target_embedding,
        decoder=decoder,
        readout=readout,
        features=features,
    )
    if config.get("fused", True):
        accelerate(network)
    return network


def match_decoder_size(
    config: DictConfig, vocabularies: Vocabularies, *, match: Component | None = None
) -> DictConfig:
    """Return the configuration with the decoder size that matches the parameters of another mechanism.

    Args:
        match: mechanism that `attention=none_matched` is compared with. The network without attention gets
            the nearest number of parameters to that of the network with this mechanism.
    """
    if match is None:
        return config
    reference, sized = config.copy(), config.copy()
    reference.attention, sized.attention.match = match, None

    def count(config: DictConfig) -> int:
        with torch.device("meta"):
            return build_network(config, vocabularies).parameter_count

    def count_with(size: int) -> int:
        sized.decoder.size = size
        return count(sized)

    target = count(reference)
    step = 2 * config.decoder.get("heads", 0) or 1  # rotary positions need heads of even width
    sizes = range(step, 64 * config.decoder.size, step)
    above = bisect_left(sizes, target, key=count_with)
    nearest = sizes[max(above - 1, 0) : above + 1]
    sized.decoder.size = min(nearest, key=lambda size: abs(count_with(size) - target))
    return sized


def _build_embeddings(
    config: DictConfig, vocabularies: Vocabularies
) -> tuple[TokenEmbedding, TokenEmbedding]:
    """Build the embeddings of source and target, which are one object if `embedding.shared`."""
    own = config.get("target_embedding") is not None
    shared = config.embedding.get("shared")
    if shared and not config.shared_vocabulary:
        raise UserError(
            "embedding.shared=true needs one vocabulary for both sides: set shared_vocabulary=true"
        )
    if shared and own:
        raise UserError("embedding.shared=true has one embedding: leave out target_embedding")

    def build(name: str, tokenizer: Tokenizer) -> TokenEmbedding:
        settings = section(config, name)
        given = accepted(settings, tokenizer=tokenizer)
        embedding: TokenEmbedding = construct(settings, vocabulary_size=tokenizer.size, **given)
        return embedding

    source = build("embedding", vocabularies.source)
    if shared:
        return source, source
    return source, build("target_embedding" if own else "embedding", vocabularies.target)


def _is_feature(config: DictConfig, vocabularies: Vocabularies) -> Tensor:
    """Return which source tokens are features, [V]."""
    ids = feature_ids(vocabularies.source)
    if not ids and get_object(config.features._target_) is not Concatenated:
        raise UserError(
            "The sources have no features to treat apart. Set data.features_column to the column of the "
            "features and tokenizer=characters or whitespace, or use features=concatenated"
        )
    is_feature = torch.zeros(vocabularies.source.size, dtype=torch.bool)
    is_feature[ids] = True
    return is_feature


def _build_decoder(config: DictConfig, memory_size: int, input_size: int) -> Decoder:
    attention = construct(
        section(config, "attention"),
        query_size=config.decoder.size,
        memory_size=memory_size,
        normaliser=construct(section(config, "normaliser")),
    )
    decoder: Decoder = construct(config.decoder, input_size=input_size, attention=attention)
    return decoder


def _build_readout(config: DictConfig, decoder: Decoder, embedding: TokenEmbedding) -> Any:
    return construct(
        config.readout,
        state_size=decoder.output_size,
        context_size=decoder.context_size,
        input_size=embedding.width,
        vocabulary_size=embedding.table.num_embeddings,
        **accepted(config.readout, embedding=embedding.table),
    )


def build_interventions(config: DictConfig, network: TranslationModel) -> dict[str, Attention]:
    """Build the attention under each intervention that `attention_override` selects, by intervention."""
    selected = config.get("attention_override")
    if selected is None:
        return {}
    if not isinstance(network, Seq2Seq):
        raise UsageError(f"attention_override={selected} needs a single network: give one run")
    attention = network.decoder.attention
    with report_errors("attention_override"):
        return {
            name: intervene(attention, name, seed=config.seed)
            for name in INTERVENTIONS
            if selected in (name, "all")
        }


def build_translator(
    config: DictConfig, vocabularies: Vocabularies, *, max_length: Size | None = None, **search: Any
) -> Translator:
    """Build the search and the reranking; settings in `search` replace those of the configuration.

    Args:
        max_length: maximum number of output tokens, EOS excluded; null for 1.5 times the longest training or
            validation target, at least 100.
    """
    grammar = construct(config.grammar) if config.get("grammar") else None
    settings = {**config.search, **search}
    settings["max_length"] = max_length or settings["max_length"]
    if settings["max_length"] is None:  # neither of a run in training nor of a checkpoint
        del settings["max_length"]
    rerankers = construct(section(config, "reranking"))
    with report_errors("search"):
        return Translator(vocabularies=vocabularies, reranking=rerankers, grammar=grammar, **settings)
