"""Timing and FLOP counts of training and search."""
