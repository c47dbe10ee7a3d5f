"""Tokenizers of text and of Python code, their training, and vocabularies."""
