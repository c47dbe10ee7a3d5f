"""Attention heat maps, curves and the style that all figures share."""
