"""Measure what a beam search costs that ends only when no live hypothesis can win.

    python experiments/robustness/search_cost.py RUN

Translates the test inputs of a run with `search.early_stopping` true and false, alternating. For each beam
size it prints the ratio of the times, false to true: the median of the rounds and their range. It also counts
the inputs for which the complete search finds an output with a higher score.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median

import attnlab
from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run


def main() -> int:
    """Run the measurement; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    (path,) = Run(options.run.absolute()).predictions.glob("test.jsonl")
    sources = [prediction.source for prediction in read_predictions(path)]
    model = attnlab.load(options.run)
    for size in (2, 5, 10):
        ratios, scores = [], {}
        for _ in range(options.rounds):
            seconds = {}
            for early in (True, False):
                began = time.process_time()
                outputs = model.translate(sources, beam_size=size, early_stopping=early, progress=False)
                seconds[early] = time.process_time() - began
                scores[early] = [output.score for output in outputs]
            ratios.append(seconds[False] / seconds[True])
        better = sum(full > early + 1e-6 for full, early in zip(scores[False], scores[True], strict=True))
        spread = f"{median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
        print(f"beam {size}: {spread}, better for {better} of {len(sources)} inputs", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
