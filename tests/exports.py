"""A checkpoint with random weights over a hostile vocabulary, and its sentences, for tests of exports."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from attnlab.config.compose import compose_run
from attnlab.training import build, checkpoints
from networks import randomise

WORDS = [
    "<script>window.harmed=1</script>",
    "</script><script>window.harmed=1</script>",
    "<img/src=x/onerror=window.harmed=1>",
    "<!--",
    "]]>",
    "&amp;",
    "{{7*7}}",
    "\"'`\\",
    "क्षितिज",
    "المدرسة",
    "__proto__",
    "constructor",
    "horse",
    "<unk>",
]
"""Words of both languages."""


def sentences(count: int, *, unknown: bool = False) -> list[str]:
    """Return sentences of 1 to 9 words; with `unknown`, some words are not in the vocabulary."""
    chance = random.Random(0)
    words = [*WORDS, "zebra", "<b>zebra"] if unknown else WORDS
    return [" ".join(chance.choices(words, k=chance.randint(1, 9))) for _ in range(count)]


def write_checkpoint(folder: Path, *overrides: str, texts: Sequence[str] | None = None) -> Path:
    """Write a checkpoint of an untrained network whose outputs vary; return its path."""
    folder.mkdir(exist_ok=True)
    data = folder / "pairs.tsv"
    data.write_text("".join(f"{text}\t{text}\n" for text in texts or sentences(200)))
    pairs = ["data=pairs", f"data.path={data}", "tokenizer=whitespace"]
    chosen = [] if "data=synthetic" in overrides else pairs
    sizes = ("embedding.size=12", "encoder.size=8", "decoder.size=16", "attention_size=5")
    others = ("search.max_length=12", f"paths.output={folder}/outputs")
    config = compose_run([*chosen, *sizes, *others, *overrides])
    torch.manual_seed(0)
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    network = build.build_network(config, vocabularies)
    randomise(network)
    checkpoint = {
        "state_dict": {f"network.{name}": value for name, value in network.state_dict().items()},
        "attnlab": checkpoints.checkpoint_contents(config, vocabularies, "run", corpus),
    }
    path = folder / "network.ckpt"
    checkpoints.save_checkpoint(checkpoint, path)
    return path
