"""attnlab: experiments with attention in recurrent sequence-to-sequence models.

The commands from Python::

    run = attnlab.train(["attention=dot", "seed=1"])    # train in a worker process
    model = attnlab.load(run)                           # a run, a checkpoint, or several as an ensemble
    model.translate(["3 4 5"], beam_size=5)[0].plot()   # predictions with tokens, score, weights
    attnlab.evaluate(run, ["search.beam_size=5"])       # metrics on the test split
    attnlab.results("outputs/reverse")                  # settings and scores as a data frame
    attnlab.history(run)                                # curves as a data frame

Importing attnlab imports no torch: each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "Model": "attnlab.api.model",
    "Prediction": "attnlab.files.predictions",
    "Score": "attnlab.api.model",
    "UserError": "attnlab.errors",
    "evaluate": "attnlab.api.evaluation",
    "history": "attnlab.api.studies",
    "load": "attnlab.api.model",
    "results": "attnlab.api.studies",
    "train": "attnlab.api.training",
}
"""The module of each public name."""

if TYPE_CHECKING:
    from attnlab.api.evaluation import evaluate
    from attnlab.api.model import Model, Score, load
    from attnlab.api.studies import history, results
    from attnlab.api.training import train
    from attnlab.errors import UserError
    from attnlab.files.predictions import Prediction

__all__ = [
    "Model",
    "Prediction",
    "Score",
    "UserError",
    "__version__",
    "evaluate",
    "history",
    "load",
    "results",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'attnlab' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """List the public names, for completion."""
    return sorted({*globals(), *_MODULES})
