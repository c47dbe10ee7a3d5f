"""Attributions of a prediction to the source tokens, and the result type of options of `explain`."""
