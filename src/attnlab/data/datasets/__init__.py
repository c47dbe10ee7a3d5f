"""Parallel text, CoNaLa and synthetic tasks."""
