"""CoNaLa with further training examples, whose intents a model generated from their code.

This is back-translation (Sennrich et al. 2016, arXiv 1511.06709) within the training split.

python generated_intents.py REVERSED FILE: sample intents for the code of every training example with the run
in REVERSED, a model of intents given code, and write a FILE of JSON lines.

attnlab train data=conala data._target_=generated_intents.load +data.generated=FILE, with this folder in
PYTHONPATH, trains on both.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from attnlab.api.model import load as load_model
from attnlab.data.conala import dataset as conala
from attnlab.data.corpus import Corpus, Pair, plain_pair
from attnlab.data.tokenization.tokenizer import UNKNOWN
from attnlab.report.collect import collect
from attnlab.training import build

SAMPLES = 4
TEMPERATURE = 0.5


def load(*, generated: str, **settings: Any) -> Corpus:
    """Load CoNaLa with the settings of `load_conala`; the examples of a file extend its training split."""
    corpus = conala.load_conala(**settings)
    path = Path(generated)
    lines = path.read_text(encoding="utf-8").splitlines()
    added = [Pair(*json.loads(line)) for line in lines]
    return replace(corpus, train=[*corpus.train, *added], files=(*corpus.files, path))


def main(reversed_runs: str, file: str) -> None:
    """Write for each code the most probable of `SAMPLES` sampled intents without unknown words, if any."""
    torch.set_num_threads(1)
    (run,) = collect([Path(reversed_runs)]).finished
    model = replace(load_model(run.directory, trust=["reversed_pairs"]), prepare=plain_pair)
    pairs = build.build_corpus(model.config).train
    outputs = model.translate(
        [pair.source for pair in pairs], beam_size=SAMPLES, nbest=SAMPLES, temperature=TEMPERATURE
    )
    intents: dict[int, str] = {}
    for output in outputs:  # best first
        if output.hypothesis and UNKNOWN not in output.hypothesis:
            intents.setdefault(output.index, output.hypothesis)
    lines = [json.dumps([intent, pairs[index].source]) for index, intent in sorted(intents.items())]
    Path(file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} of {len(pairs)} examples have an intent", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
