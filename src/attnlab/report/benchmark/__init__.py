"""The benchmark of attention mechanisms, version 1: `attnlab benchmark` and its stored results."""
