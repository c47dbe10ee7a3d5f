"""Packed models: a checkpoint without the state of its training, with what a model card states."""

from pathlib import Path
from typing import Any

import yaml

from attnlab import __version__
from attnlab.api.model import RunPath, locate_all
from attnlab.data.features import is_feature
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.errors import UserError
from attnlab.metrics import registry
from attnlab.training.checkpoints import read_checkpoint, save_checkpoint
from attnlab.training.models import RESTORE_ERRORS, network_weights
from attnlab.types import UNK

CARD = "card"  # Key in a checkpoint, beside the configuration, of the fields that `pack` adds


def pack(run: RunPath, path: str | Path | None = None, *, bf16: bool = False, **fields: str) -> Path:
    """Write a trained model as one file, which is accepted wherever a run is.

    It is a checkpoint without optimizer, loops and callbacks: the weights, the configuration, the tokenizers,
    digests of the data, hashes of the training sources, and the scores. Opening it runs no code.

    Args:
        run: a run directory, of which the best checkpoint is packed, or a checkpoint file.
        path: file to write; by default NAME-VARIANT-seedN.ckpt in the current folder.
        bf16: store the weights in bfloat16; the model computes in fp32, and its outputs can differ.
        **fields: fields of the model card, such as `licence`, `citation` and `description`.
    """
    source, checkpoint, card = _read(run)
    config = checkpoint["attnlab"]["config"]
    name = f"{config['name']}-{config['variant']}-seed{config['seed']}.ckpt"
    path = Path(path or name.replace("/", "-")).expanduser()
    if path.exists():
        raise UserError(f"{path} exists: remove it, or give another file with --output")
    weights = network_weights(checkpoint, source)
    if bf16:  # tied weights share their memory, and are stored once
        shared = {
            (value.data_ptr(), value.shape): value.bfloat16() if value.is_floating_point() else value
            for value in weights.values()
        }
        weights = {key: shared[value.data_ptr(), value.shape] for key, value in weights.items()}
    contents = {
        "state_dict": {f"network.{key}": value for key, value in weights.items()},
        "attnlab": {**checkpoint["attnlab"], CARD: {**card, **fields}},
    }
    save_checkpoint(contents, path)
    return path


def model_card(model: RunPath) -> str:
    """Return the model card of a run, a checkpoint or a packed model: Markdown with a block of YAML."""
    path, checkpoint, card = _read(model)
    contents, weights = checkpoint["attnlab"], network_weights(checkpoint, path)
    config, unstated = contents["config"], "not stated: ask the author"
    try:
        data = contents.get("data", {"files": {}, "splits": {}})
        names = {Path(file).name: digest for file, digest in data["files"].items()}
        parts = ("encoder", "attention", "decoder", "readout")
        facts = {
            "licence": unstated,
            "citation": unstated,
            **{name: value for name, value in card.items() if name not in ("description", "scores")},
            "input": "TEXT" if config["data"].get("features_column") is None else "TEXT<TAB>FEATURES",
            **_tokenization(config, contents["vocabularies"][0]),
            "network": [config[part]["_target_"].rpartition(".")[2] for part in parts],
            "parameters": sum({value.data_ptr(): value.numel() for value in weights.values()}.values()),
            "types": sorted({str(value.dtype) for value in weights.values()}),
            "pairs": {split: record["pairs"] for split, record in data["splits"].items()},
            "scores": {
                name: f"{metric.number(value)} {metric.unit}".strip()
                for name, value in card["scores"].items()
                if (metric := registry.metric(name)).kind in ("text", "token")
            },
            # Names without the author's folders, unless two files have the same one
            "sha256": names if len(names) == len(data["files"]) else data["files"],
        }
        block = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=1000)
    except (*RESTORE_ERRORS, yaml.YAMLError) as error:
        raise UserError(f"{path} does not fit this version of attnlab ({error!r})") from error
    name = path.name if CARD in contents else model  # a packed file is handed on
    title = f"# {config['name']}/{config['variant']}, seed {config['seed']}"
    use = f"    attnlab predict {name} < lines.txt"
    description = str(card.get("description", "Description: not stated."))
    return "\n\n".join([title, description, use, f"```yaml\n{block}```"])


def _tokenization(config: dict[str, Any], vocabulary: str) -> dict[str, Any]:
    """Return how texts are split on both sides, and the letters that the model knows if it reads letters."""
    sections = {
        "source": config["tokenizer"],
        "target": config.get("target_tokenizer") or config["tokenizer"],
    }
    names = {side: section["_target_"].rpartition(".")[2] for side, section in sections.items()}
    normal = config["tokenizer"].get("normalization")
    facts = {"tokenizers": names} | ({"normalization": normal} if normal else {})
    if names["source"] == "characters":
        tokenizer = Tokenizer.from_json(vocabulary)
        tokens = tokenizer.tokens(range(UNK + 1, tokenizer.size))
        facts["letters"] = " ".join(sorted(token for token in tokens if not is_feature(token)))
    return facts


def _read(model: RunPath) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Return the path and the contents of a checkpoint, and the fields of its card."""
    ((run, path),) = locate_all(model)
    checkpoint = read_checkpoint(path)
    try:
        config = checkpoint["attnlab"]["config"]
        complete = {"name", "variant", "seed", "data"} <= config.keys() and checkpoint["state_dict"]
        result = run.read_result() if path == run.best else {}  # other checkpoints have other scores
        packages = result.get("packages", {})
        trained_with = {
            "commit": result.get("git_commit"),
            "python": result.get("python"),
            "torch": packages.get("torch"),
        }
        card = {
            "attnlab": packages.get("attnlab", __version__),
            **{name: value for name, value in trained_with.items() if value is not None},
            "scores": result.get("metrics", {}),
            **checkpoint["attnlab"].get(CARD, {}),
        }
    except RESTORE_ERRORS:
        complete = False
    if not complete:
        raise UserError(f"{path} was not written by attnlab: it contains no weights or no configuration")
    return path, checkpoint, card
