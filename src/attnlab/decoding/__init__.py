"""Greedy and beam search, reranking, and conversion to predictions."""
