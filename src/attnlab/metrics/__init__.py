"""Metrics of decoded texts, token distributions and attention weights."""
