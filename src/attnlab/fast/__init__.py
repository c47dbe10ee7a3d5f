"""Optional fast paths: hand-written backward passes and oneDNN products, equal to the plain code to 1e-5.

The autograd graph of a loop computes the weight gradients of every step separately, stores tensors that could
be recomputed and has the overhead of many small operations. Here a loop is one operation: its forward pass
writes to buffers, its backward pass follows the equations in the docstrings, and sums over steps are one
product after the loop.

`dispatch` chooses the implementation of an encoder and of a decoder's unroll. `Kernels` chooses the operators
that layers use, which are exported here. Both are off outside `Kernels(fused=True).active()`, which
`attnlab.nn.seq2seq.Seq2Seq` enters.
"""

from attnlab.fast.attend import additive_scores
from attnlab.fast.cells import tanh
from attnlab.fast.kernels import Kernels, active_kernels
from attnlab.fast.layer import StateParameters, cell_step, unroll_layer
from attnlab.fast.linear import Linear, linear, torch_refuses_lstm

__all__ = [
    "Kernels",
    "Linear",
    "StateParameters",
    "active_kernels",
    "additive_scores",
    "cell_step",
    "linear",
    "tanh",
    "torch_refuses_lstm",
    "unroll_layer",
]
