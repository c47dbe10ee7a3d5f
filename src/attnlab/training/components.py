"""The objects of a training: data and module, in one order for `attnlab train` and `attnlab.build`; Trainer.

Read from top to bottom: `build_objects`, `attnlab.training.build` (data and network) and
`attnlab.training.module_arguments`.
"""

import logging
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import LearningRateMonitor, RichModelSummary
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.profilers import AdvancedProfiler, PyTorchProfiler, SimpleProfiler
from omegaconf import DictConfig

from attnlab.config.by_pairs import choose_by_pairs
from attnlab.config.construct import accepted, beside, construct, section
from attnlab.data.corpus import Corpus
from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.files.run_directory import Run
from attnlab.metrics.registry import name, score
from attnlab.metrics.texts import Texts
from attnlab.nn.seq2seq import TranslationModel
from attnlab.training.build import (
    build_corpus,
    build_network,
    build_vocabularies,
    check_alignments,
    copies_source,
    match_decoder_size,
)
from attnlab.training.callbacks import progress
from attnlab.training.callbacks.checkpoints import BestCheckpoint, LastCheckpoint
from attnlab.training.callbacks.guard import Guard
from attnlab.training.callbacks.outputs import Predictions
from attnlab.training.callbacks.reproducibility import EpochDigests, Reproducible
from attnlab.training.checkpoints import checkpoint_contents, read_checkpoint, save_checkpoint
from attnlab.training.hardware import choose_precision, with_precision
from attnlab.training.initialisation import find_source, freeze, initialise, load_word_vectors
from attnlab.training.length_limits import check_positions, choose_max_length, choose_steps
from attnlab.training.loggers import MetricsFile, flatten
from attnlab.training.module import Seq2SeqModule
from attnlab.training.module_arguments import module_arguments, monitored
from attnlab.training.own_parts import check_parts

log = logging.getLogger(__name__)

PROFILERS = {"advanced": AdvancedProfiler, "pytorch": PyTorchProfiler, "simple": SimpleProfiler}
"""Profilers of Lightning that `trainer.profiler` names."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning plugin that writes checkpoints atomically and loads plain values and tensors only."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        save_checkpoint(checkpoint, Path(path))

    def load_checkpoint(
        self, path: str | Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path), map_location=map_location, mmap=False)


def build_objects(
    config: DictConfig, *, corpus: Corpus | None = None, run: Run | None = None
) -> tuple[Seq2SeqModule, Seq2SeqData, dict[str, Any]]:
    """Build the data, the network and the module of a training. Parts from outside are checked first.

    Returns:
        The module, whose configuration has the settings that follow from the machine, the data and other
        settings; the data; and "init" and "word_vectors", the origin of the initial weights.
    """
    log.info("reading the data")
    corpus = build_corpus(config, corpus)
    vocabularies = build_vocabularies(config, corpus)
    init: dict[str, Any] = config.get("init") or {}
    source, vocabularies = find_source(init.get("from"), run, vocabularies)
    data = build_data(config, corpus, vocabularies)
    config = choose_by_pairs(config, len(corpus.train))
    config = with_precision(config, run.read_result().get("precision") if run else None)
    config = match_decoder_size(config, vocabularies, match=config.attention.get("match"))
    config = choose_steps(choose_max_length(config, data), len(corpus.train))

    log.info("building the network")
    network = build_network(config, vocabularies)
    for part in check_parts(config, network, vocabularies.source):
        log.info("%s keeps its contract", part)
    vectors = beside(config, "embedding", load_word_vectors)
    report: dict[str, Any] = {"word_vectors": load_word_vectors(network, vocabularies, **vectors)}
    if source is not None:
        report["init"] = initialise(network, vocabularies, source)
    freeze(network, init.get("freeze", []))
    check_positions(network, data)
    module = build_module(config, network, vocabularies, corpus)
    module.contents = checkpoint_contents(config, vocabularies, run.hash if run else "", corpus)
    return module, data, {name: value for name, value in report.items() if value}


def build_module(
    config: DictConfig, network: TranslationModel, vocabularies: Vocabularies, corpus: Corpus
) -> Seq2SeqModule:
    """Build the LightningModule: the network with loss, metrics, optimizer and search settings."""
    return Seq2SeqModule(**module_arguments(config, network, vocabularies, corpus))


def check_monitored(config: DictConfig, module: Seq2SeqModule, data: Seq2SeqData) -> None:
    """Raise `UserError` if the texts of a validation do not define a monitored score."""
    batches = [*data.val_dataloader().sampler]
    limit = config.trainer.get("limit_val_batches")
    limit = 1.0 if limit is None else limit
    count = limit if isinstance(limit, int) else max(1, int(limit * len(batches)))
    pairs = [data.pairs("val")[index] for batch in batches[:count] for index in batch]
    limited = f" with trainer.limit_val_batches={limit}" * (count < len(batches))
    for section_name, monitor in monitored(config).items():
        if name(monitor) not in module.text_metrics:
            continue
        perfect = [
            Prediction(
                index=index,
                source=pair.source,
                references=(text,),
                hypothesis=text,
                annotations=pair.annotations or {},
            )
            for index, pair in enumerate(pairs)
            for text in [module.vocabularies.reference(pair)]
        ]
        texts = Texts(perfect, module.vocabularies.target.spell, module.bleu_tokenizer)
        for reason in score(texts, [name(monitor)]).undefined.values():
            raise UserError(
                f"{section_name}.monitor={monitor} is undefined for the validation data{limited}: {reason}. "
                f"Set {section_name}.monitor=val/loss and {section_name}.mode=min"
            )


def build_data(config: DictConfig, corpus: Corpus, vocabularies: Vocabularies) -> Seq2SeqData:
    """Build the datamodule: batches of every split; raise `UserError` as `check_alignments`."""
    check_alignments(config.data.get("alignments_path"), vocabularies)
    data: Seq2SeqData = construct(
        section(config, "batching"),
        with_copy_ids=copies_source(config),
        corpus=corpus,
        vocabularies=vocabularies,
        seed=config.seed,
    )
    return data


def build_loggers(config: DictConfig, run: Run) -> list[Logger]:
    """Build the configured loggers, without those that are unavailable, and log the settings of the run.

    Each receives the run directory as `run` or `save_dir`.
    """
    nodes = [node for node in (config.get("logger") or {}).values() if node is not None]
    loggers: list[Logger] = []
    for node in nodes:
        given = accepted(node, run=run, save_dir=str(run.directory))
        logger = construct(node, **{name: value for name, value in given.items() if name not in node})
        if logger is not None:
            logger.log_hyperparams(flatten(config))
            loggers.append(logger)
    return loggers


def build_callbacks(config: DictConfig, run: Run, metrics: MetricsFile, *, terminal: bool) -> list[Callback]:
    """Build the callbacks of every run and those of the section `callbacks`, without those that are null.

    One with `_partial_: true` receives the run directory. For the order see `LastCheckpoint`.
    """
    nodes = [node for node in (config.callbacks or {}).values() if node is not None]
    return [
        LastCheckpoint(run, metrics, every_minutes=config.checkpoint.every_minutes),
        *([progress.ProgressBar(), RichModelSummary(max_depth=2)] if terminal else []),
        EpochDigests(),
        progress.EpochLog(),
        Guard(),
        Reproducible(config.seed),
        progress.Throughput(),
        Predictions(run.predictions),
        LearningRateMonitor(logging_interval="step"),
        *(construct(node, **({"run": run} if node.get("_partial_") else {})) for node in nodes),
        BestCheckpoint(run.best, monitor=config.checkpoint.monitor, mode=config.checkpoint.mode),
    ]


def build_trainer(config: DictConfig, run: Run, loggers: list[Logger], callbacks: list[Callback]) -> Trainer:
    """Build Lightning's Trainer for training; a profiler in `PROFILERS` writes to the run directory."""
    if str(config.trainer.strategy).endswith(("_spawn", "_fork", "_notebook")):
        raise UserError(
            f"trainer.strategy={config.trainer.strategy} is for notebooks with a Trainer of your own: set "
            "trainer.strategy=ddp"
        )
    profiler = PROFILERS.get(config.trainer.get("profiler"))
    return configured_trainer(
        config,
        default_root_dir=str(run.directory),
        logger=loggers,
        callbacks=callbacks,
        enable_progress_bar=any(isinstance(part, progress.ProgressBar) for part in callbacks),
        enable_model_summary=False,
        **({} if profiler is None else {"profiler": profiler(dirpath=run.directory, filename="profile")}),
        plugins=[AtomicCheckpointIO()],
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
    )


def quiet_trainer(config: DictConfig, **arguments: Any) -> Trainer:
    """Build Lightning's Trainer without loggers, checkpoints and messages, for an evaluation or a lesson."""
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    arguments |= {**dict.fromkeys(off, False), "use_distributed_sampler": False, "num_sanity_val_steps": 0}
    return configured_trainer(config, **arguments)


def configured_trainer(config: DictConfig, **arguments: Any) -> Trainer:
    """Build Lightning's Trainer from the section `trainer`; these arguments replace its settings."""
    settings = {**section(config, "trainer"), "precision": choose_precision(config.trainer)}
    if settings["accelerator"] == "auto":  # Lightning would choose Apple's GPUs too, which have no float64
        settings["accelerator"] = "cuda" if torch.cuda.is_available() else "cpu"
    trainer: Trainer = construct({"_convert_": "object", **settings}, **arguments)
    return trainer
