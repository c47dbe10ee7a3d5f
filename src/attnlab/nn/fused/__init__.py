"""Recurrences with a way back written by hand.

Autograd's graph of a loop runs every step's weight gradients by themselves, keeps what could be computed
again and pays for each small operation twice. Here a loop is one operation: its forward writes into buffers,
its backward follows the equations in the docstrings, and what sums over steps is one product after the loop.
The decoders and the encoder say where this is used; the numbers are those of their single steps.
"""

from attnlab.nn.fused.attend import Scores, sum_energies
from attnlab.nn.fused.layer import advance, recur, tanh
from attnlab.nn.fused.loop import Loop, Weights
from attnlab.nn.fused.rows import Rows

__all__ = ["Loop", "Rows", "Scores", "Weights", "advance", "recur", "sum_energies", "tanh"]
