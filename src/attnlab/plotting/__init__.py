"""Figures from plain arrays."""
