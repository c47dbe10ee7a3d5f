"""The arguments of `Seq2SeqModule` by a configuration: loss terms, metrics, optimizer and search."""

import logging
from collections.abc import Collection
from itertools import chain
from typing import Any

from omegaconf import DictConfig

from attnlab.config.construct import accepts, construct, constructor, section
from attnlab.data.corpus import Corpus
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.metrics.registry import default_metrics, name, names
from attnlab.metrics.text.ngrams import bleu_metric, guess_tokenizer
from attnlab.metrics.texts import WORDS
from attnlab.nn.seq2seq import TranslationModel
from attnlab.training.build import build_translator
from attnlab.training.losses.base import LossTerm
from attnlab.training.shards import Shards

log = logging.getLogger(__name__)

WORD_METRICS = {"wer", "ser", "per", "cer"}
"""Metrics of string transduction, whose targets are words."""


def module_arguments(
    config: DictConfig, network: TranslationModel, vocabularies: Vocabularies, corpus: Corpus
) -> dict[str, Any]:
    """Return the arguments of a module that trains or evaluates a network on a corpus."""
    watched = monitored(config)
    text_metrics = _choose_metrics(corpus, {name(monitor) for monitor in watched.values()})
    for section_name, monitor in watched.items():
        if name(monitor) in names("text") and name(monitor) not in text_metrics:
            raise UserError(
                f"{section_name}.monitor={monitor}: this corpus has no such metric; it has "
                + ", ".join(f"val/{metric}" for metric in text_metrics)
            )
    lr, schedule = config.optimizer.get("lr"), config.scheduler.schedule
    needs = {"max_lr": "lr"} if lr is not None and schedule.get("max_lr") == lr else {}
    return {
        "config": config,
        "network": network,
        "translator": build_translator(config, vocabularies),
        "optimizer": constructor(config.optimizer),
        "lr": lr,
        "scheduler": constructor(schedule),
        "scheduler_needs": {
            argument: number
            for argument, number in {**config.scheduler.needs, **needs}.items()
            if accepts(schedule, argument)  # another class may have replaced that of the option
        },
        "scheduler_interval": config.scheduler.interval,
        "teacher_forcing": construct(section(config, "teacher_forcing")),
        "loss_terms": _build_loss_terms(config),
        "text_metrics": text_metrics,
        "bleu_tokenizer": _bleu_tokenizer(config, corpus),
        "shards": Shards(config.batching.shards, seed=config.seed) if config.batching.get("shards") else None,
    }


def monitored(config: DictConfig) -> dict[str, str]:
    """Return the metric that each section of the configuration monitors."""
    stopping = (config.get("callbacks") or {}).get("early_stopping") or {}
    sections = {"checkpoint": config.checkpoint, "callbacks.early_stopping": stopping}
    return {key: settings.monitor for key, settings in sections.items() if settings.get("monitor")}


def _build_loss_terms(config: DictConfig) -> dict[str, LossTerm]:
    """Build the terms of the section `loss.terms`, without those that are null or whose weight is 0."""
    terms = config.loss.get("terms") or {}
    return {name: construct(node) for name, node in terms.items() if node and node.get("weight") != 0}


def _choose_metrics(corpus: Corpus, monitored: Collection[str]) -> tuple[str, ...]:
    """Return the default metrics and those of the corpus.

    BLEU and chrF compare sentences, and the edit distance is `ser` by another name. They are left out where
    the corpus has a metric of string transduction, whose targets are words, unless they are named or
    monitored.
    """
    left_out = {"bleu", "chrf", "edit_distance"} if WORD_METRICS.intersection(corpus.metrics) else set()
    defaults = [metric for metric in default_metrics() if metric in monitored or metric not in left_out]
    return tuple(dict.fromkeys((*defaults, *corpus.metrics)))


def _bleu_tokenizer(config: DictConfig, corpus: Corpus) -> str:
    """Return `bleu.tokenize`, by default the tokenizer that fits the references of all evaluation splits."""
    tokenizer: str | None = config.bleu.tokenize
    if tokenizer is None:
        pairs = chain.from_iterable(corpus.splits[split] for split in ("val", *corpus.test_splits))
        tokenizer = guess_tokenizer(
            pair.target if pair.reference is None else pair.reference for pair in pairs
        )
        if tokenizer != WORDS:
            log.info("bleu.tokenize=%s: the references have no spaces between words", tokenizer)
    bleu_metric(tokenizer)
    return tokenizer
