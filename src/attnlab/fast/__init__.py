"""Fast paths: hand-written backward passes and oneDNN products, equal to the plain code to 1e-5.

The autograd graph of a loop computes the weight gradients of every step separately, stores tensors that could
be recomputed and has the overhead of many small operations. Here a loop is one operation: its forward pass
writes to buffers, its backward pass follows the equations in the docstrings, and sums over steps are one
product after the loop.

`accelerate` takes a finished network and gives its parts the fast subclasses of their classes.
"""

from attnlab.fast.parts import accelerate, describe_speed, int8_products, make_plain, search_precision

__all__ = ["accelerate", "describe_speed", "int8_products", "make_plain", "search_precision"]
