"""attnlab: experiments with attention in recurrent sequence-to-sequence models.

The commands from Python::

    run = attnlab.train(["attention=dot", "seed=1"])    # train in a worker process
    model = attnlab.load(run)                           # a run, a checkpoint, or several as an ensemble
    model.translate(["3 4 5"], beam_size=5)[0].plot()   # predictions with tokens, score, weights
    attnlab.evaluate(run, ["search.beam_size=5"])       # metrics on the test split
    attnlab.results("outputs/reverse")                  # settings and scores as a data frame
    attnlab.history(run)                                # curves as a data frame
    attnlab.pack(run)                                   # one file to hand on

The same model and data with a Trainer of your own::

    module, data = attnlab.build(["attention=dot", "decoder=luong"], train=pairs, val=others)
    lightning.Trainer(max_epochs=10).fit(module, data)
    attnlab.load(module).translate(["3 4 5"])

Importing attnlab imports no torch: each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "Model": "attnlab.training.model",
    "Prediction": "attnlab.files.predictions",
    "Score": "attnlab.training.model",
    "Seq2Seq": "attnlab.nn.seq2seq",
    "Seq2SeqData": "attnlab.data.datamodule",
    "Seq2SeqModule": "attnlab.training.module",
    "UserError": "attnlab.errors",
    "build": "attnlab.api.objects",
    "compose": "attnlab.api.objects",
    "evaluate": "attnlab.api.evaluation",
    "history": "attnlab.api.studies",
    "load": "attnlab.api.model",
    "model_card": "attnlab.deploy.packing",
    "pack": "attnlab.deploy.packing",
    "results": "attnlab.api.studies",
    "train": "attnlab.api.training",
}
"""The module of each public name."""

if TYPE_CHECKING:
    from attnlab.api.evaluation import evaluate
    from attnlab.api.model import load
    from attnlab.api.objects import build, compose
    from attnlab.api.studies import history, results
    from attnlab.api.training import train
    from attnlab.data.datamodule import Seq2SeqData
    from attnlab.deploy.packing import model_card, pack
    from attnlab.errors import UserError
    from attnlab.files.predictions import Prediction
    from attnlab.nn.seq2seq import Seq2Seq
    from attnlab.training.model import Model, Score
    from attnlab.training.module import Seq2SeqModule

__all__ = [
    "Model",
    "Prediction",
    "Score",
    "Seq2Seq",
    "Seq2SeqData",
    "Seq2SeqModule",
    "UserError",
    "__version__",
    "build",
    "compose",
    "evaluate",
    "history",
    "load",
    "model_card",
    "pack",
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
