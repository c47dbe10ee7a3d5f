"""The CoNaLa benchmark: dataset, placeholders, and the tokenizer, grammar and metrics of Python code.

A benchmark brings all its parts in a package of its own: option files in `conf/` name the dataset, the
tokenizer, the grammar and the functions for reranking, and `attnlab.metrics` imports the module `metrics`.
"""
