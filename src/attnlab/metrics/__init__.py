"""Metrics of decoded texts, token distributions and attention weights, and their registry.

Every module in `attnlab.metrics.text` is imported here, so that its metrics are in the registry. None of them
imports torch or sacreBLEU before a score is computed.
"""

from importlib import import_module
from pkgutil import iter_modules

from attnlab.metrics import text

for _module in iter_modules(text.__path__, f"{text.__name__}."):
    import_module(_module.name)
