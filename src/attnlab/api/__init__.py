"""Python interface of the commands. Its names are imported from `attnlab` itself: `attnlab.load`."""
