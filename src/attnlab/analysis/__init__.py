"""Collecting runs, statistics over seeds and significance tests over sentences."""
