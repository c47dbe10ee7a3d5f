"""Collecting runs, statistics and significance tests."""
