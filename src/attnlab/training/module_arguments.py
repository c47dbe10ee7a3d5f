"""The arguments of `Seq2SeqModule` by a configuration: loss terms, metrics, optimizer and search."""

import logging
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Annotated, Any, Literal

from omegaconf import DictConfig

from attnlab.config.construct import accepts, construct, constructor, section
from attnlab.data.corpus import Corpus
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.metrics.registry import CLASSIFICATION, default_metrics, name, names
from attnlab.metrics.text.ngrams import bleu_metric, guess_tokenizer
from attnlab.metrics.texts import WORDS
from attnlab.metrics.tokens import build_class_metrics
from attnlab.nn.seq2seq import TranslationModel
from attnlab.settings import Component
from attnlab.training.build import build_translator, copies_source
from attnlab.training.shards import Shards

log = logging.getLogger(__name__)

WORD_METRICS = {"wer", "ser", "per", "cer"}  # Metrics of string transduction, whose targets are words

BleuTokenizer = Literal["13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"]
Needs = Annotated[
    Mapping[str, Literal["total_steps", "steps_per_epoch"]],
    "arguments of the schedule, each total_steps or steps_per_epoch",
]


def module_arguments(
    config: DictConfig, network: TranslationModel, vocabularies: Vocabularies, corpus: Corpus
) -> dict[str, Any]:
    """Return the arguments of a module that trains or evaluates a network on a corpus."""
    lr = config.optimizer.get("lr")
    metrics = _choose_metrics(config, corpus)
    class_metrics = [each for each in metrics if each.startswith(CLASSIFICATION)]
    if class_metrics and copies_source(config):
        raise UserError(f"data.metrics: {class_metrics[0]} needs a readout that does not copy")
    return {
        "config": config,
        "network": network,
        "translator": build_translator(config, vocabularies),
        "optimizer": constructor(config.optimizer),
        "lr": lr,
        **schedule_arguments(lr, **config.scheduler),
        "teacher_forcing": construct(section(config, "teacher_forcing")),
        "loss_terms": {
            name: construct(node)
            for name, node in (config.loss.get("terms") or {}).items()
            if node and node.get("weight") != 0
        },
        "text_metrics": [each for each in metrics if each not in class_metrics],
        "class_metrics": build_class_metrics(class_metrics, vocabularies.target.size),
        "bleu_tokenizer": choose_bleu_tokenizer(corpus, **config.bleu),
        "shards": Shards(config.batching.shards, seed=config.seed) if config.batching.get("shards") else None,
    }


def schedule_arguments(
    lr: float | None, *, interval: Literal["step", "epoch"], needs: Needs, schedule: Component
) -> dict[str, Any]:
    """Return the arguments of the module that describe the learning-rate schedule.

    Args:
        lr: learning rate of the optimizer.
        interval: update after every step or epoch.
        needs: arguments of the schedule that are computed from the run.
        schedule: the schedule.

    Raises:
        UserError: if a schedule that counts steps is updated after epochs.
    """
    follows = {"max_lr": "lr"} if lr is not None and schedule.get("max_lr") == lr else {}
    if interval == "epoch" and any(accepts(schedule, argument) for argument in needs):
        raise UserError("scheduler.interval=epoch: this schedule counts steps: set scheduler.interval=step")
    return {
        "scheduler": constructor(schedule),
        "scheduler_needs": {
            argument: number
            for argument, number in {**needs, **follows}.items()
            if accepts(schedule, argument)  # another class may have replaced that of the option
        },
        "scheduler_interval": interval,
    }


def monitored(config: DictConfig) -> dict[str, str]:
    """Return the metric that each section of the configuration monitors."""
    stopping = (config.get("callbacks") or {}).get("early_stopping") or {}
    sections = {"checkpoint": config.checkpoint, "callbacks.early_stopping": stopping}
    return {key: settings.monitor for key, settings in sections.items() if settings.get("monitor")}


def _choose_metrics(config: DictConfig, corpus: Corpus) -> tuple[str, ...]:
    """Return the default metrics and those of the corpus.

    BLEU and chrF compare sentences, and the edit distance is `ser` by another name. They are left out where
    the corpus has a metric of string transduction, whose targets are words, unless they are named or
    monitored.
    """
    watched = {key: name(monitor) for key, monitor in monitored(config).items()}
    left_out: Collection[str] = ()
    if WORD_METRICS.intersection(corpus.metrics):
        left_out = {"bleu", "chrf", "edit_distance"} - {*watched.values()}
    defaults = [metric for metric in default_metrics() if metric not in left_out]
    metrics = tuple(dict.fromkeys((*defaults, *corpus.metrics)))
    for key, metric in watched.items():
        if metric in names("text") and metric not in metrics:
            raise UserError(
                f"{key}.monitor={monitored(config)[key]}: this corpus has no such metric; it has "
                + ", ".join(f"val/{each}" for each in metrics)
            )
    return metrics


def choose_bleu_tokenizer(corpus: Corpus, *, tokenize: BleuTokenizer | None = None) -> str:
    """Return sacreBLEU's tokenizer for BLEU of a corpus.

    Args:
        corpus: its references of all evaluation splits are read.
        tokenize: sacreBLEU's tokenizer; null for one that fits the script of the references: 13a, zh, or char
            for other scripts without spaces between words.
    """
    if tokenize is not None:
        bleu_metric(tokenize)  # or else a missing package would be noticed after an epoch
        return tokenize
    pairs = chain.from_iterable(corpus.splits[split] for split in ("val", *corpus.test_splits))
    guessed = guess_tokenizer(pair.target if pair.reference is None else pair.reference for pair in pairs)
    if guessed != WORDS:
        log.info("bleu.tokenize=%s: the references have no spaces between words", guessed)
    return guessed
