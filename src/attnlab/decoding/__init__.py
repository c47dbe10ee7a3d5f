"""Greedy search, beam search and reranking."""
