"""JoeyNMT worker of peers.py, run in a separate environment: reads jobs from standard input, prints seconds.

Calls JoeyNMT's model, batch, loss, clipping and search in the same way as its training and prediction do.
"""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.batch import Batch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

STEPS = 30
UNK, PAD, BOS, EOS = 0, 1, 2, 3
JOEYNMT_IDS = np.array([PAD, BOS, EOS, UNK])  # ids in JoeyNMT of attnlab's first four ids: PAD, SOS, EOS, UNK
SPECIALS = {"unk": UNK, "pad": PAD, "bos": BOS, "eos": EOS}
RECURRENT = {"type": "recurrent", "rnn_type": "lstm", "hidden_size": 512, "num_layers": 2, "dropout": 0.0}
MODEL = {
    "encoder": {**RECURRENT, "embeddings": {"embedding_dim": 256}, "bidirectional": True},
    "decoder": {
        **RECURRENT,
        "embeddings": {"embedding_dim": 256},
        "attention": "bahdanau",
        "init_hidden": "bridge",
        "input_feeding": True,
    },
}


def vocabulary(size: int) -> Vocabulary:
    """Create a vocabulary of `size` tokens."""
    names = {f"{name}_token": f"<{name}>" for name in SPECIALS}
    ids = {f"{name}_id": id for name, id in SPECIALS.items()}
    tokens = [f"w{i}" for i in range(size - len(SPECIALS))]
    return Vocabulary(tokens, SimpleNamespace(**names, **ids, lang_tags=[], sep_token=None, sep_id=None))


def load(path: Path) -> dict[str, torch.Tensor]:
    """Load a batch written by peers.py, with JoeyNMT's special ids."""
    arrays = dict(np.load(path))
    for name in ("source", "target"):
        ids = arrays[name]
        arrays[name] = np.where(
            ids < len(JOEYNMT_IDS), JOEYNMT_IDS[np.minimum(ids, len(JOEYNMT_IDS) - 1)], ids
        )
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def make_batch(loaded: dict[str, torch.Tensor]) -> Batch:
    """Create a JoeyNMT batch."""
    return Batch(
        src=loaded["source"],
        src_length=loaded["source_lengths"],
        src_prompt_mask=None,
        trg=loaded["target"],
        trg_prompt_mask=None,
        indices=torch.arange(len(loaded["source"])),
        device=torch.device("cpu"),
        pad_index=PAD,
        eos_index=EOS,
        is_train=True,
    )


def train(
    model: Model, optimizer: torch.optim.Optimizer, loaded: dict[str, torch.Tensor], autocast: dict
) -> None:
    """Run one training step."""
    batch = make_batch(loaded)
    batch.sort_by_src_length()
    with torch.autocast(**autocast):
        loss, _, _, _ = model(return_type="loss", **vars(batch))
    batch.normalize(loss, "tokens").backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def main(folder: str) -> None:
    """Run the command."""
    torch.manual_seed(0)
    sizes = map(int, (Path(folder) / "vocabularies").read_text().split())
    model = build_model(MODEL, *map(vocabulary, sizes))
    model.loss_function = ("crossentropy", 0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = {path.stem: load(path) for path in Path(folder).glob("*.npz")}

    for line in sys.stdin:
        precision, work, option, number = line.split()
        loaded = batches[f"{option if work == 'train' else work}-{number}"]
        autocast = {"device_type": "cpu", "enabled": precision == "bf16", "dtype": torch.bfloat16}
        began = time.perf_counter()
        if work == "train":
            model.train()
            train(model, optimizer, loaded, autocast)
        else:
            model.eval()
            batch = make_batch(loaded)
            batch.sort_by_src_length()
            search(
                model,
                batch,
                max_output_length=STEPS,
                beam_size=int(option),
                beam_alpha=1.0,
                min_output_length=STEPS,
                autocast=autocast,
            )
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
