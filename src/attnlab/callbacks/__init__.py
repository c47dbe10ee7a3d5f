"""What happens beside training: pictures, predictions, throughput, guards, and stopping in good order."""

from attnlab.callbacks.attention_weights import AttentionWeights
from attnlab.callbacks.best_checkpoint import BestCheckpoint
from attnlab.callbacks.checkpoint_contents import CheckpointContents
from attnlab.callbacks.epoch_log import EpochLog
from attnlab.callbacks.guard import Guard
from attnlab.callbacks.interruption import Interruption
from attnlab.callbacks.last_checkpoint import LastCheckpoint
from attnlab.callbacks.pictures import Pictures
from attnlab.callbacks.predictions import Predictions
from attnlab.callbacks.progress_bar import ProgressBar
from attnlab.callbacks.reproducible import Reproducible
from attnlab.callbacks.throughput import Throughput
from attnlab.callbacks.weight_averaging import WeightAveraging

__all__ = [
    "AttentionWeights",
    "BestCheckpoint",
    "CheckpointContents",
    "EpochLog",
    "Guard",
    "Interruption",
    "LastCheckpoint",
    "Pictures",
    "Predictions",
    "ProgressBar",
    "Reproducible",
    "Throughput",
    "WeightAveraging",
]
