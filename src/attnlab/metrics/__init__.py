"""How good an output is, and how good the attention behind it."""
