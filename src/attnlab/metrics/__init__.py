"""Metrics of decoded texts, token distributions and attention weights, and their registry.

Every module in `attnlab.metrics.text` and the metrics of `BENCHMARKS` are imported here, so that they are in
the registry. None of them imports torch or sacreBLEU before a score is computed.
"""

from importlib import import_module
from pkgutil import iter_modules

from attnlab.metrics import text
from attnlab.metrics.text import ngrams  # noqa: F401 (BLEU and chrF come first in tables)

BENCHMARKS = ("attnlab.data.conala.metrics",)  # Metrics that belong to a benchmark

for _name in (*(_module.name for _module in iter_modules(text.__path__, f"{text.__name__}.")), *BENCHMARKS):
    import_module(_name)
