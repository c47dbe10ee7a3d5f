"""The option files of `conf/`, their names and keys. Imports neither torch nor Hydra."""

import difflib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.errors import UsageError
from attnlab.files.yaml import read_yaml

_PACKAGE = Path(__file__).resolve().parents[1]
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parents[1] / "conf"
"""Folder of the config groups: inside an installed package, or at the top of a checkout."""

OPTIONAL = (
    "experiment",
    "study",
    "debug",
    "explain",
    "tokenizer@target_tokenizer",
    "embedding@target_embedding",
)
"""Groups of which no option has to be chosen."""

WORDS = {
    "accuracy": "token_accuracy",
    "arch": "encoder",
    "averaging": "callbacks.averaging.decay",
    "bahdanau": "additive",
    "batch": "batch_size",
    "beam": "beam_size",
    "clip": "gradient_clip_val",
    "csv": "none",
    "dev": "val",
    "early_stopping": "callbacks.early_stopping.patience",
    "epochs": "max_epochs",
    "features_col": "source_column",
    "gru": "recurrent",
    "hidden": "size",
    "hidden_size": "size",
    "learning_rate": "lr",
    "lstm": "recurrent",
    "luong": "general",
    "model": "encoder",
    "overfit_batches": "overfit",
    "patience": "callbacks.early_stopping.patience",
    "rnn": "recurrent",
    "target_col": "target_column",
    "target_tokenizer": "tokenizer@target_tokenizer",
    "valid": "val",
    "vocab": "tokenizer.max_size",
    "vocab_size": "max_size",
}
"""Words of other toolkits, and the name or the last part of the name that attnlab has for them."""


RENAMED = {
    "distillation.teachers": "loss.terms.distillation.teachers",
    "distillation.weight": "loss.terms.distillation.weight",
    "loss.alignment": "loss.terms.alignment.weight",
    "loss.coverage": "loss.terms.coverage.weight",
    "loss.entropy": "loss.terms.entropy.weight",
    "loss.label_smoothing": "loss.terms.label_smoothing.weight",
}
"""Settings of earlier versions, and their names in this one."""

PARTS = {"callbacks": "callbacks", "logger": "logger", "loss": "loss.terms"}
"""Groups of which several options can be chosen, and the section that has one section for each of them.

A setting chooses an option, too: `callbacks.averaging.decay=0.99` adds the callback with its other settings.
"""


def check_name(key: str) -> None:
    """Raise `UsageError` for a setting that has another name in this version."""
    if key in RENAMED:
        raise UsageError(f"{key} is now {RENAMED[key]}: write {RENAMED[key]}=VALUE")


def options_of(group: str) -> list[str]:
    """Return the names of the shipped options of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def suggest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean 'NEAREST'?", to append to a message, or "" if no name is similar."""
    known = {other: None for other in names if other != name and not other.rpartition(".")[2].startswith("_")}
    prefix, _, last = name.replace("/", ".").rpartition(".")
    word = WORDS.get(last.lower(), last)
    same = [other for other in known if other == word or other.endswith((f".{word}", f"/{word}"))]
    same.sort(key=lambda other: (not other.startswith(f"{prefix}."), other.count(".")))
    if word != last and not same:
        return f" Did you mean {word!r}?" if re.search(r"\W", word) else ""
    near = same[:1] or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


@cache
def top_level_keys() -> frozenset[str]:
    """Return the groups, and the settings outside of groups, of all shipped files."""
    groups = ("experiment", "study", "debug")  # their files set keys of the whole configuration
    files = [CONF / "train.yaml", *(path for group in groups for path in (CONF / group).glob("*.yaml"))]
    settings = {str(key) for path in files for key in read_yaml(path)}
    return frozenset(settings | {path.name for path in CONF.iterdir() if path.is_dir()})


@cache
def keys_of(group: str, option: str) -> frozenset[str]:
    """Return the keys of an option, without those that start with an underscore."""
    content = read_option(group, option)
    nested = {
        str(group_at).rpartition("@")[2]
        for entry in content.get("defaults", [])
        if isinstance(entry, dict)
        for group_at in entry
        if "@" in str(group_at)
    }
    settings = content.get(group, content)  # one level deeper in a file with the package _global_
    return frozenset(
        str(key) for key in {*settings, *nested} if not str(key).startswith("_") and key != "defaults"
    )


def read_option(group: str, option: str) -> dict[str, Any]:
    """Return the content of an option's file."""
    content: dict[str, Any] = read_yaml(CONF / group / f"{option}.yaml")
    return content
