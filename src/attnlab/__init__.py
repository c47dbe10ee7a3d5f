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
    from attnlab.api.evaluation import evaluate as evaluate
    from attnlab.api.model import load as load
    from attnlab.api.objects import build as build
    from attnlab.api.objects import compose as compose
    from attnlab.api.studies import history as history
    from attnlab.api.studies import results as results
    from attnlab.api.training import train as train
    from attnlab.data.datamodule import Seq2SeqData as Seq2SeqData
    from attnlab.deploy.packing import model_card as model_card
    from attnlab.deploy.packing import pack as pack
    from attnlab.errors import UserError as UserError
    from attnlab.files.predictions import Prediction as Prediction
    from attnlab.nn.seq2seq import Seq2Seq as Seq2Seq
    from attnlab.training.model import Model as Model
    from attnlab.training.model import Score as Score
    from attnlab.training.module import Seq2SeqModule as Seq2SeqModule

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'attnlab' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """List the public names, for completion."""
    return sorted({*globals(), *_MODULES})
