"""Datasets: parallel text, CoNaLa and synthetic tasks; each module has a function that returns a `Corpus`."""
