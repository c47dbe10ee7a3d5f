"""From a configuration to the parts it names. Sizes that follow from other sizes are worked out here."""

from __future__ import annotations

import logging
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from lightning import Callback, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import LearningRateMonitor, RichModelSummary
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf

from attnlab.config.range_checks import check_numbers
from attnlab.data.corpus import Corpus, Pair, Preparation
from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.examples import Examples, encode
from attnlab.data.tokenization.vocabularies import Vocabularies, train_vocabularies
from attnlab.errors import UserError
from attnlab.metrics.registry import DEFAULT_METRICS
from attnlab.nn.attention import Attention
from attnlab.nn.attention.interventions import INTERVENTIONS, intervene
from attnlab.nn.decoders import Decoder
from attnlab.nn.embedding import TokenEmbedding
from attnlab.nn.encoders import Encoder
from attnlab.nn.ensemble import Ensemble
from attnlab.nn.readout import PointerGenerator
from attnlab.nn.seq2seq import Seq2Seq, TranslationModel
from attnlab.runs.directory import Run
from attnlab.training import callbacks, checkpoints
from attnlab.training.loggers import MetricsFile
from attnlab.training.module import Seq2SeqModule

WRONG = (TypeError, ValueError, MisconfigurationException)
"""What constructors raise at settings that do not fit."""


def construct(node: Any, /, **arguments: Any) -> Any:
    """Hydra's `instantiate`, with what went wrong inside said plainly.

    Raises:
        UserError: what the target raised as a wrong setting.
    """
    try:
        made = instantiate(node)
        return made(**arguments) if callable(made) and arguments else made
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from None
        if isinstance(cause, WRONG):
            raise UserError(f"{node.get('_target_', node)}: {cause}") from error
        raise
    except WRONG as error:
        raise UserError(f"{node.get('_target_', node)}: {error}") from error


def build_corpus(config: DictConfig) -> Corpus:
    """Raw text pairs in their splits."""
    corpus: Corpus = construct(config.data)
    return corpus


def build_preparation(config: DictConfig) -> Preparation:
    """What makes a pair, still without its target, of a source as a user types it."""
    node = config.data.get("preparation")
    prepare: Preparation = partial(Pair, target="") if node is None else construct(node)
    return prepare


def build_vocabularies(config: DictConfig, corpus: Corpus) -> Vocabularies:
    """Tokenizers of both sides, trained on the training split alone."""
    return train_vocabularies(
        corpus.train,
        source=instantiate(config.tokenizer),
        target=instantiate(config.get("target_tokenizer")),
        shared=config.shared_vocabulary,
    )


def build_data(config: DictConfig, corpus: Corpus, vocabularies: Vocabularies) -> Seq2SeqData:
    """Batches of every split.

    Raises:
        UserError: if gold alignments are given for tokens that are less than words.
    """
    if config.data.get("alignments_path") and any(side.splits_words for side in vocabularies):
        raise UserError(
            f"data.alignments_path={config.data.alignments_path} links words, and a tokenizer here cuts them "
            "into pieces: use tokenizer=whitespace or words"
        )
    data: Seq2SeqData = construct(
        {"_target_": "attnlab.data.datamodule.Seq2SeqData", "_partial_": True, **config.batching},
        with_copy_ids=copies_source(config),
        corpus=corpus,
        vocabularies=vocabularies,
        seed=config.seed,
        cache=Path(config.paths.cache).expanduser() / "encoded",
    )
    return data


def copies_source(config: DictConfig) -> bool:
    """Return whether the readout copies source tokens, so that batches must hold their `copy_ids`."""
    target = get_object(config.readout._target_)
    return isinstance(target, type) and issubclass(target, PointerGenerator)


def encode_pairs(config: DictConfig, vocabularies: Vocabularies, pairs: list[Pair]) -> Examples:
    """Text pairs as the network reads them."""
    batching = config.batching
    return encode(
        pairs,
        vocabularies,
        source_eos=batching.source_eos,
        max_source_length=batching.max_source_length,
        max_target_length=batching.max_target_length,
        with_copy_ids=copies_source(config),
    )


def build_network(config: DictConfig, vocabularies: Vocabularies) -> Seq2Seq:
    """Embeddings, encoder, bridge, attention, decoder and readout."""
    check_numbers(config)
    if "match" in config.attention:
        config = match_parameters(config, vocabularies)
    embedding = {"size": config.embedding.size, "dropout": config.embedding.dropout}
    source_embedding = TokenEmbedding(
        vocabulary_size=vocabularies.source.size, word_dropout=config.embedding.word_dropout, **embedding
    )
    if config.embedding.shared and not config.shared_vocabulary:
        raise UserError(
            "embedding.shared=true needs one vocabulary for both sides: set shared_vocabulary=true"
        )
    target_embedding = (
        source_embedding
        if config.embedding.shared
        else TokenEmbedding(
            vocabulary_size=vocabularies.target.size, word_dropout=config.embedding.word_dropout, **embedding
        )
    )
    encoder: Encoder = construct(config.encoder, input_size=config.embedding.size)
    attention = construct(
        config.attention,
        query_size=config.decoder.size,
        memory_size=encoder.memory_size,
        normaliser=construct(config.normaliser),
    )
    decoder: Decoder = construct(config.decoder, input_size=config.embedding.size, attention=attention)
    if config.bridge.get("half") == "backward" and encoder.directions == 1:
        raise UserError(
            "bridge.half=backward needs an encoder with two directions: encoder.bidirectional=true"
        )
    bridge = construct(
        config.bridge,
        memory_size=encoder.memory_size,
        encoder_layers=encoder.layers,
        **decoder.state_shape._asdict(),
    )
    readout = construct(
        {key: value for key, value in config.readout.items() if key != "tied"},
        state_size=decoder.output_size,
        context_size=attention.context_size,
        input_size=config.embedding.size,
        vocabulary_size=vocabularies.target.size,
        tied=target_embedding.table if config.readout.tied else None,
    )
    return Seq2Seq(
        source_embedding=source_embedding,
        encoder=encoder,
        bridge=bridge,
        target_embedding=target_embedding,
        decoder=decoder,
        readout=readout,
        fused=config.fused,
    )


def match_parameters(config: DictConfig, vocabularies: Vocabularies) -> DictConfig:
    """The configuration whose decoder is widened until it has the parameters of `attention.match`.

    A network without attention is a smaller one: what it lacks may be size alone. This is the baseline that
    lacks only the attention, to the nearest width.
    """
    matched = config.copy()

    def parameters(attention: DictConfig, size: int) -> int:
        matched.attention, matched.decoder.size = attention, size
        with torch.device("meta"):  # counted, not made
            return build_network(matched, vocabularies).parameter_count

    wanted = parameters(config.attention.match, config.decoder.size)
    own = OmegaConf.masked_copy(config.attention, [key for key in config.attention if key != "match"])
    sizes = range(1, 64 * config.decoder.size)
    above = bisect_left(sizes, wanted, key=lambda size: parameters(own, size))
    matched.decoder.size = min(
        sizes[max(above - 1, 0) : above + 1], key=lambda size: abs(parameters(own, size) - wanted)
    )
    return matched


def build_overrides(config: DictConfig, network: TranslationModel) -> dict[str, Attention]:
    """The attention under each intervention that `attention_override` asks for, by the intervention's name.

    Raises:
        UserError: if there is no such intervention, the attention has no weights to replace, or there are
            several networks.
    """
    asked = config.attention_override
    if asked not in (None, "all", *INTERVENTIONS):
        raise UserError(f"attention_override={asked}: choose from {', '.join(INTERVENTIONS)}, all")
    if asked is None:
        return {}
    if not isinstance(network, Seq2Seq):
        raise UserError(f"attention_override={asked} changes one network: give one run")
    chosen = [how for how in INTERVENTIONS if asked in (how, "all")]
    attention = network.decoder.attention
    try:
        return {how: intervene(attention, how, seed=config.seed) for how in chosen}
    except ValueError as error:
        raise UserError(str(error)) from error


def build_module(
    config: DictConfig, network: TranslationModel, vocabularies: Vocabularies, corpus: Corpus
) -> Seq2SeqModule:
    """The network with its loss, scores and optimizer."""
    return Seq2SeqModule(
        network=network,
        vocabularies=vocabularies,
        optimizer=instantiate(config.optimizer),
        scheduler=instantiate(config.scheduler.schedule),
        scheduler_needs=dict(config.scheduler.needs),
        scheduler_interval=config.scheduler.interval,
        teacher_forcing=construct(config.teacher_forcing),
        label_smoothing=config.loss.label_smoothing,
        coverage_weight=config.loss.coverage,
        beam_size=config.search.beam_size,
        length_penalty=config.search.length_penalty,
        **build_reranking(config),
        max_length=config.search.max_length,
        text_metrics=(*DEFAULT_METRICS, *corpus.metrics),
    )


def build_reranking(config: DictConfig) -> dict[str, Any]:
    """Return the keyword arguments of `attnlab.decoding.reranking.rerank` that the settings choose."""
    return {
        "coverage_penalty": config.reranking.coverage_penalty,
        "accepts": instantiate(config.reranking.accepts),
    }


def build_loggers(config: DictConfig, run: Run) -> list[Logger]:
    """The chosen loggers, but for those that could not be had."""
    chosen = [construct(node, run=run, config=config) for node in config.logger.values()]
    return [logger for logger in chosen if logger is not None]


def build_callbacks(
    config: DictConfig, run: Run, vocabularies: Vocabularies, metrics: MetricsFile, *, terminal: bool
) -> list[Callback]:
    """What every run has, and what the callbacks group adds."""
    contents = checkpoints.describe(config, vocabularies, run.hash)
    interruption = callbacks.Interruption()
    shown: list[Callback] = [callbacks.ProgressBar(), RichModelSummary(max_depth=2)] if terminal else []
    return [
        callbacks.LastCheckpoint(run, metrics, interruption, every_minutes=config.checkpoint.every_minutes),
        interruption,
        *shown,
        callbacks.EpochLog(),
        callbacks.Guard(),
        callbacks.Reproducible(config.seed),
        callbacks.CheckpointContents(contents),
        callbacks.Throughput(),
        callbacks.Predictions(run.predictions),
        LearningRateMonitor(logging_interval="step"),
        *(construct(node, run=run) for node in config.callbacks.values()),
        callbacks.BestCheckpoint(run.best, monitor=config.checkpoint.monitor, mode=config.checkpoint.mode),
    ]


def build_trainer(config: DictConfig, run: Run, loggers: list[Logger], callbacks_: list[Callback]) -> Trainer:
    """Lightning's Trainer."""
    return make_trainer(
        config,
        default_root_dir=str(run.directory),
        logger=loggers,
        callbacks=callbacks_,
        plugins=[checkpoints.AtomicCheckpointIO()],
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
    )


def make_trainer(config: DictConfig, **arguments: Any) -> Trainer:
    """Lightning's Trainer as the settings have it, but for these arguments."""
    trainer: Trainer = construct({"_partial_": True, "_convert_": "object", **config.trainer}, **arguments)
    return trainer


def restore_network(path: Path) -> tuple[DictConfig, Vocabularies, Seq2Seq]:
    """A trained network in evaluation mode, from its checkpoint alone.

    Raises:
        UserError: if the file is no checkpoint of this package, or cut short.
    """
    checkpoint = checkpoints.load(path)
    config, vocabularies = checkpoints.restore(checkpoint, path)
    network = build_network(config, vocabularies)
    prefix = "network."
    weights = {k.removeprefix(prefix): v for k, v in checkpoint["state_dict"].items() if k.startswith(prefix)}
    network.load_state_dict(weights)
    return config, vocabularies, network.eval()


def restore_networks(paths: Sequence[Path]) -> tuple[DictConfig, Vocabularies, TranslationModel]:
    """The network of one checkpoint, or the ensemble of several; the configuration is that of the first.

    Raises:
        UserError: if they cannot speak with one voice: their vocabularies differ, or what they read.
    """
    config, vocabularies, first = restore_network(paths[0])
    members = [first]
    for path in paths[1:]:
        other, others, network = restore_network(path)
        if [side.to_json() for side in others] != [side.to_json() for side in vocabularies]:
            raise UserError(f"{path} has other vocabularies than {paths[0]}: an ensemble shares them")
        if other.batching.source_eos != config.batching.source_eos:
            raise UserError(
                f"{path} was trained with batching.source_eos={other.batching.source_eos}, {paths[0]} was "
                "not: all networks of an ensemble must have the same setting"
            )
        if copies_source(other) != copies_source(config):
            raise UserError(
                f"{path} and {paths[0]} cannot be ensembled: one has readout=pointer_generator, the other not"
            )
        members.append(network)
    if len(members) == 1:
        return config, vocabularies, first
    return config, vocabularies, Ensemble(members).eval()


def quieten_lightning() -> None:
    """Let what Lightning says go to the log alone: on import it gives its loggers a terminal of their own.

    And leave out advice that does not hold here: our batches are cheap to make, our order of training can be
    resumed, and the deprecated call is Lightning's.
    """
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for advice in (".*LeafSpec.* is deprecated", ".*does not have many workers", ".*is not resumable"):
        warnings.filterwarnings("ignore", advice)
