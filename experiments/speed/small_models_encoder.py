"""CPU time of a bidirectional LSTM over sentences of one length, forward and backward, on one thread.

    python small_models_encoder.py --csv small_models_encoder.csv

The variants alternate. `ratio` is the median of the time divided by that of the fused layers.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from tables import print_table
from torch import Tensor

from attnlab.fast import accelerate
from attnlab.nn.encoders import RecurrentEncoder


def fused(encoder: RecurrentEncoder, x: Tensor) -> Tensor:
    """Run the fused layers over [B, S, E]."""
    lengths = torch.full((len(x),), x.size(1))
    return encoder(x, lengths, x[..., 0] == x[..., 0]).states


def onednn(encoder: RecurrentEncoder, x: Tensor) -> Tensor:
    """Run torch's network, which uses the LSTM of oneDNN, over [B, S, E]."""
    return encoder.network(x)[0]


def one_direction_at_a_time(encoder: RecurrentEncoder, x: Tensor) -> Tensor:
    """Run one product per step and direction over [B, S, E], by autograd."""
    states = []
    for weight, recurrent, bias, recurrent_bias in encoder.network.all_weights:
        gates = F.linear(x, weight, bias + recurrent_bias).transpose(0, 1)  # [S, B, gates]
        hidden = cell = x.new_zeros(len(x), recurrent.size(1))  # [B, H]
        for step in gates if not states else gates.flip(0):
            hidden, cell = update(torch.addmm(step, hidden, recurrent.T), cell)
            states.append(hidden)
    return torch.stack(states)


def both_directions_at_once(encoder: RecurrentEncoder, x: Tensor) -> Tensor:
    """Run one batched product per step for both directions over [B, S, E], by autograd."""
    weights = encoder.network.all_weights
    forward, backward = (F.linear(x, weight, bias + other) for weight, _, bias, other in weights)
    gates = torch.stack([forward, backward.flip(1)]).permute(2, 0, 1, 3)  # [S, 2, B, gates]
    recurrent = torch.stack([part[1].T for part in weights])  # [2, H, gates]
    hidden = cell = x.new_zeros(2, len(x), recurrent.size(1))  # [2, B, H]
    states = []
    for step in gates:
        hidden, cell = update(torch.baddbmm(step, hidden, recurrent), cell)
        states.append(hidden)
    return torch.stack(states)


def update(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Return the new h and c [..., H] of an LSTM, given the sums of its gates [..., gates]."""
    i, f, g, o = gates.chunk(4, dim=-1)  # each [..., H]
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)  # [..., H]
    return torch.sigmoid(o) * torch.tanh(cell), cell


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for inputs, units, sentences, length in ((64, 128, 64, 4), (64, 128, 64, 8)):
        encoder = RecurrentEncoder(input_size=inputs, size=units)
        accelerate(encoder)
        x = torch.randn(sentences, length, inputs, requires_grad=True)  # [B, S, E]
        works = fused, onednn, one_direction_at_a_time, both_directions_at_once
        times: dict[str, list[float]] = {work.__name__: [] for work in works}
        for turn in range(options.rounds + 5):
            for work in works:
                start = time.process_time()
                work(encoder, x).sum().backward()
                if turn >= 5:  # the first rounds warm up
                    times[work.__name__].append(time.process_time() - start)
        for name, seconds in times.items():
            pairs = zip(seconds, times["fused"], strict=True)
            rows.append(
                {
                    "units": units,
                    "sentences": sentences,
                    "length": length,
                    "variant": name.replace("_", " "),
                    "cpu_ms": round(1e3 * median(seconds), 2),
                    "ratio": round(median(one / two for one, two in pairs), 3),
                }
            )
    print_table(rows, f"Bidirectional LSTM, {options.rounds} rounds, one thread", options.csv)


if __name__ == "__main__":
    main()
