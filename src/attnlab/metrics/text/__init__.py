"""Metrics of decoded texts, one module each. A new one is found without being listed anywhere."""
