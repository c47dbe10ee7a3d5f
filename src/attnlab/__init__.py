"""attnlab: experiments with attention in recurrent sequence-to-sequence models."""

__version__ = "0.1.0"
