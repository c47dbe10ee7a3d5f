"""Timing and FLOP counts."""
