"""What happens beside training: pictures, predictions, throughput, guards, and stopping in good order."""

from attnlab.callbacks.checkpoint_contents import CheckpointContents
from attnlab.callbacks.epoch_log import EpochLog
from attnlab.callbacks.guard import Guard
from attnlab.callbacks.interruption import InterruptedRunError, Interruption
from attnlab.callbacks.pictures import Pictures
from attnlab.callbacks.predictions import Predictions
from attnlab.callbacks.reproducible import Reproducible
from attnlab.callbacks.throughput import Throughput

__all__ = [
    "CheckpointContents",
    "EpochLog",
    "Guard",
    "InterruptedRunError",
    "Interruption",
    "Pictures",
    "Predictions",
    "Reproducible",
    "Throughput",
]
