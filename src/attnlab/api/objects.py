"""The Lightning objects of a run for a Trainer of the user: configuration, module and data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lightning import seed_everything
from omegaconf import DictConfig

from attnlab.config.checks import check_settings
from attnlab.config.compose import as_list, compose_run, usage_errors
from attnlab.config.options import as_value
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.errors import UsageError
from attnlab.files.run_identity import flatten
from attnlab.training.components import build_objects
from attnlab.training.module import Seq2SeqModule


def compose(overrides: Sequence[str] = (), **settings: Any) -> DictConfig:
    """Return the configuration that `attnlab train` composes from these settings; see `build`.

    Raises:
        UserError: if a setting is wrong.
    """
    with usage_errors():
        return compose_run([*as_list(overrides), *_as_overrides(settings)])


def build(
    overrides: Sequence[str] = (), *, train: Any = None, val: Any = None, test: Any = (), **settings: Any
) -> tuple[Seq2SeqModule, Seq2SeqData]:
    """Build the module and the data of a run, for `lightning.Trainer(…).fit(module, data)`.

    They are those that `attnlab train` builds from the same settings: the same vocabularies, initial weights
    and order of the data. Settings of the sections `trainer`, `callbacks`, `logger` and `checkpoint` have no
    effect, since the Trainer is the user's.

    Args:
        overrides: settings, as on the command line: `["attention=dot", "encoder.size=64"]`.
        train: training pairs in place of a dataset: an iterable of (source, target), a pandas frame, a
            `datasets.Dataset` or a torch dataset. Of a frame or of dictionaries, `source` and `target` are
            read, or else the first two columns. The default tokenizer is then `whitespace`.
        val: validation pairs, which `train` needs.
        test: test pairs.
        settings: settings as arguments: `attention="dot"` chooses an option, `encoder={"size": 64}` sets
            values of a section, `seed=1` one value.

    Raises:
        UserError: if a setting is wrong, or does not fit the data.
    """
    overrides = as_list(overrides)
    if (train is None) != (val is None) or (train is None and test is not None and len(test)):
        raise UsageError("build: give both train and val, or neither")
    corpus = None
    if train is not None:
        corpus = Corpus(
            train=[*_pairs("train", train)],
            val=[*_pairs("val", val)],
            test=[*_pairs("test", () if test is None else test)],
        )
        overrides = ["data=pairs", *overrides]
    config = compose(overrides, **settings)
    check_settings(config)
    seed_everything(config.seed, workers=True, verbose=False)
    module, data, _ = build_objects(config, corpus=corpus)
    return module, data


def _as_overrides(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the override of each setting; mappings are sections."""
    for key, value in flatten(settings).items():
        is_target = key in ("target_embedding", "target_tokenizer")
        name = f"{key.removeprefix('target_')}@{key}" if is_target else key
        yield f"{name}={as_value(value)}"


def _pairs(split: str, data: Any) -> Iterator[Pair]:
    """Yield the pairs of a split; see `build`."""
    if isinstance(data, (str, Mapping)):
        kind = type(data).__name__
        raise UsageError(f"build: {split} is a {kind}: give pairs of texts, or a frame or Dataset of them")
    if hasattr(data, "itertuples"):  # a pandas frame
        named = {"source", "target"} <= {*data.columns}
        data = (data[["source", "target"]] if named else data.iloc[:, :2]).itertuples(index=False, name=None)
    elif not hasattr(data, "__iter__"):  # a torch dataset
        data = map(data.__getitem__, range(len(data)))
    for number, item in enumerate(data):
        if isinstance(item, Pair):
            yield item
            continue
        texts = item
        if isinstance(item, Mapping):
            values = [*item.values()]
            if isinstance(values[0], Mapping):  # {"translation": {"de": …, "en": …}}
                values = [*values[0].values()]
            texts = [item.get("source"), item.get("target")] if "source" in item else values
        if isinstance(texts, str) or len(texts) < 2 or not all(isinstance(text, str) for text in texts[:2]):
            raise UsageError(f"build: {split}[{number}] is {item!r}: give two texts, a source and its target")
        yield Pair(*texts[:2])
