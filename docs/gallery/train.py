"""Train a small network per attention mechanism, and write its weights on one sentence.

    OMP_NUM_THREADS=1 python docs/gallery/train.py

writes `docs/gallery/weights.json`, which the page `docs/explanation/gallery.md` draws: with seed 0, for each
option of `conf/attention` that has weights, the output of a trained network for `SENTENCE`, the attention
weights and the share of unseen sequences that are exactly right. The networks reverse their input; those
whose attention only moves forward copy it. Several minutes on one core.
"""

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.config.compose import compose_run
from attnlab.config.options import options_of
from attnlab.data.corpus import Corpus, Pair
from attnlab.decoding.search import greedy
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training.build import build_network, build_vocabularies
from attnlab.types import EOS, PAD, SOS, Batch

FILE = Path(__file__).with_name("weights.json")
SYMBOLS = 12
FIRST = 3  # id of the first symbol, after PAD, SOS and EOS
SENTENCE = [7, 3, 12, 5, 9, 14, 4, 8]
LENGTHS = (4, 9)  # smallest and largest, of training and test
TASKS = {"reverse": lambda source: source.flip(1), "copy": lambda source: source}
COPIES = ("forward", "local_m", "milk", "mixture", "mocha", "monotonic")
NOT_DRAWN = ("final", "markov", "none", "none_matched")  # no weights, or another decoder
STEPS, BATCH_SIZE, LEARNING_RATE, SEED = 400, 48, 0.008, 0
SIZES = ("embedding.size=32", "encoder.size=32", "decoder.size=64", "attention_size=32")


def batch_of(source: Tensor, target: Tensor) -> Batch:
    """Return sources and targets of equal lengths [B, S] as a batch."""
    size = len(source)
    edge = torch.ones(size, 1, dtype=torch.int64)
    return Batch(
        source,
        torch.full((size,), source.size(1)),
        torch.cat((SOS * edge, target, EOS * edge), dim=1),
        torch.arange(size),
    )


def draw(size: int, task: str, generator: torch.Generator) -> Batch:
    """Draw random sequences of one random length, with their answers."""
    length = int(torch.randint(LENGTHS[0], LENGTHS[1] + 1, (1,), generator=generator))
    source = torch.randint(FIRST, FIRST + SYMBOLS, (size, length), generator=generator)
    return batch_of(source, TASKS[task](source))


def train(network: Seq2Seq, task: str) -> None:
    """Train with Adam and a one-cycle learning rate."""
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=STEPS)
    for _ in range(STEPS):
        batch = draw(BATCH_SIZE, task, generator)
        logits = network.logits(network(batch), None)  # [B, T, V]
        loss = F.cross_entropy(logits.flatten(0, -2), batch.labels.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        scheduler.step()


def exact_match(network: Seq2Seq, task: str) -> float:
    """Return the share of 500 new sequences that are exactly right."""
    generator = torch.Generator().manual_seed(SEED + 1)
    right = 0
    for _ in range(5):
        batch = draw(100, task, generator)
        outputs = greedy(network, batch, max_length=12).tokens
        right += sum(ids == labels[:-1] for [ids], labels in zip(outputs, batch.labels.tolist(), strict=True))
    return right / 500


def main() -> None:
    """Train the options that are named on the command line, or all."""
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    symbols = " ".join(map(str, range(FIRST, FIRST + SYMBOLS)))
    for name in sys.argv[1:] or sorted({*options_of("attention")} - {*NOT_DRAWN}):
        task = "copy" if name in COPIES else "reverse"
        config = compose_run([f"attention={name}", *SIZES, "embedding.shared=false"])
        pairs = [Pair(symbols, symbols)]
        torch.manual_seed(SEED)
        network = build_network(config, build_vocabularies(config, Corpus(train=pairs, val=pairs)))
        train(network, task)
        network.eval()
        source = torch.tensor([SENTENCE])
        found = greedy(network, batch_of(source, TASKS[task](source)), max_length=12)
        weights = found.weights[0][0]  # [T, S]
        results[name] = {
            "task": task,
            "output": found.tokens[0][0],
            "weights": [[round(float(weight), 3) for weight in row] for row in weights],
            "exact_match": exact_match(network, task),
        }
        print(name, task, results[name]["exact_match"], flush=True)
        lines = [f'"{key}": {json.dumps(results[key], sort_keys=True)}' for key in sorted(results)]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
