"""The Lightning objects of a run for a Trainer of the user: configuration, module and data."""

from collections.abc import Iterable, Sequence

from lightning import seed_everything
from omegaconf import DictConfig

from attnlab.config.checks import check_settings
from attnlab.config.compose import as_list, compose_run, usage_errors
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.errors import UsageError
from attnlab.training import build as builders
from attnlab.training import components
from attnlab.training.initialisation import load_word_vectors
from attnlab.training.length_limits import check_positions, choose_max_length
from attnlab.training.module import Seq2SeqModule

TextPair = Pair | tuple[str, str]
"""A source and its target."""


def compose(overrides: Sequence[str] = ()) -> DictConfig:
    """Return the configuration that `attnlab train` composes from these overrides.

    Raises:
        UserError: if a setting is wrong.
    """
    with usage_errors():
        return compose_run(as_list(overrides))


def build(
    overrides: Sequence[str] = (),
    *,
    train: Iterable[TextPair] | None = None,
    val: Iterable[TextPair] | None = None,
    test: Iterable[TextPair] = (),
) -> tuple[Seq2SeqModule, Seq2SeqData]:
    """Build the module and the data of a run, for `lightning.Trainer(…).fit(module, data)`.

    They are those that `attnlab train` builds from the same overrides: the same vocabularies, initial weights
    and order of the data. Settings of the sections `trainer`, `callbacks`, `logger` and `checkpoint` have no
    effect, since the Trainer is the user's.

    Args:
        overrides: settings, as on the command line: `["attention=dot", "data.task=copy"]`.
        train: training pairs in place of a dataset; the default tokenizer is then `whitespace`.
        val: validation pairs, which `train` needs.
        test: test pairs.

    Raises:
        UserError: if a setting is wrong, or does not fit the data.
    """
    overrides = as_list(overrides)
    if (train is None) != (val is None) or (train is None and test):
        raise UsageError("build: give both train and val, or neither")
    corpus = None
    if train is not None and val is not None:
        corpus = Corpus(train=_pairs(train), val=_pairs(val), test=_pairs(test))
        overrides = ["data=pairs", *overrides]
    config = compose(overrides)
    if config.get("init"):
        raise UsageError("build: init is a setting of attnlab train; load weights into module.network")
    check_settings(config)
    seed_everything(config.seed, workers=True, verbose=False)
    corpus = builders.build_corpus(config, corpus)
    vocabularies = builders.build_vocabularies(config, corpus)
    data = components.build_data(config, corpus, vocabularies)
    config = choose_max_length(builders.match_sizes(config, vocabularies), data)
    network = builders.build_network(config, vocabularies)
    load_word_vectors(config, network, vocabularies)
    check_positions(network, data)
    return components.build_module(config, network, vocabularies, corpus), data


def _pairs(pairs: Iterable[TextPair]) -> list[Pair]:
    return [pair if isinstance(pair, Pair) else Pair(*pair) for pair in pairs]
