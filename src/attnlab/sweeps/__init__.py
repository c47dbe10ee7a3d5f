"""Sweeps and hyperparameter searches."""
