"""Greedy and beam search, reranking, conversion to predictions, and scores of given targets."""
