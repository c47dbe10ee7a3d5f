"""The objects of a training, built in one order for `attnlab train` and for `attnlab.build`."""

import logging
from typing import Any, NamedTuple

from omegaconf import DictConfig

from attnlab.data.corpus import Corpus
from attnlab.data.datamodule import Seq2SeqData
from attnlab.errors import UserError
from attnlab.files.run_directory import Run
from attnlab.training import build, components
from attnlab.training.checkpoints import checkpoint_contents
from attnlab.training.hardware import with_precision
from attnlab.training.initialisation import find_source, freeze, initialise, load_word_vectors
from attnlab.training.length_limits import check_positions, choose_max_length, choose_steps
from attnlab.training.module import Seq2SeqModule
from attnlab.training.own_parts import check_parts

log = logging.getLogger(__name__)


class Objects(NamedTuple):
    """The objects of a training."""

    config: DictConfig  # with the settings that follow from the machine, the data and other settings
    data: Seq2SeqData
    module: Seq2SeqModule
    report: dict[str, Any]  # "init" and "word_vectors": the origin of the initial weights


def build_objects(config: DictConfig, *, corpus: Corpus | None = None, run: Run | None = None) -> Objects:
    """Build the data, the network and the module of a training. Parts from outside are checked first.

    Args:
        config: composed configuration.
        corpus: replaces the dataset of the configuration.
        run: run directory. A resumed run keeps its vocabularies and its precision.

    Raises:
        UserError: if a setting or a part does not fit the others or the data.
    """
    log.info("reading the data")
    corpus = build.build_corpus(config, corpus)
    vocabularies = build.build_vocabularies(config, corpus)
    init: dict[str, Any] = config.get("init") or {}
    if "shrink" in init and init.get("from") is None:
        raise UserError("init.shrink is a factor of loaded weights: set init.from to a run or checkpoint too")
    source, vocabularies = find_source(init.get("from"), run, vocabularies)
    data = components.build_data(config, corpus, vocabularies)
    config = with_precision(config, run.read_result().get("precision") if run else None)
    config = choose_steps(choose_max_length(build.match_sizes(config, vocabularies), data), len(corpus.train))

    log.info("building the network")
    network = build.build_network(config, vocabularies)
    for part in check_parts(config, network, vocabularies.source):
        log.info("%s keeps its contract", part)
    report: dict[str, Any] = {"word_vectors": load_word_vectors(config, network, vocabularies)}
    if source is not None:
        report["init"] = initialise(network, vocabularies, source, init.get("shrink", 1.0))
    freeze(network, init.get("freeze", []))
    check_positions(network, data)
    module = components.build_module(config, network, vocabularies, corpus)
    module.contents = checkpoint_contents(config, vocabularies, run.hash if run else "", corpus)
    return Objects(config, data, module, {name: value for name, value in report.items() if value})
