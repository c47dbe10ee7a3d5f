"""Lightning callbacks: figures, predictions, checkpoints, digests, throughput, checks and interruption."""

from attnlab.training.callbacks.attention_figures import AttentionFigures
from attnlab.training.callbacks.attention_weights import AttentionWeights
from attnlab.training.callbacks.best_checkpoint import BestCheckpoint
from attnlab.training.callbacks.busy_cores import BusyCores
from attnlab.training.callbacks.epoch_digests import EpochDigests
from attnlab.training.callbacks.epoch_log import EpochLog
from attnlab.training.callbacks.guard import Guard
from attnlab.training.callbacks.interruption import Interruption
from attnlab.training.callbacks.last_checkpoint import LastCheckpoint
from attnlab.training.callbacks.learning_rate import LearningRate
from attnlab.training.callbacks.network_summary import NetworkSummary
from attnlab.training.callbacks.predictions import Predictions
from attnlab.training.callbacks.progress_bar import ProgressBar
from attnlab.training.callbacks.reproducible import Reproducible
from attnlab.training.callbacks.throughput import Throughput
from attnlab.training.callbacks.weight_averaging import WeightAveraging

__all__ = [
    "AttentionFigures",
    "AttentionWeights",
    "BestCheckpoint",
    "BusyCores",
    "EpochDigests",
    "EpochLog",
    "Guard",
    "Interruption",
    "LastCheckpoint",
    "LearningRate",
    "NetworkSummary",
    "Predictions",
    "ProgressBar",
    "Reproducible",
    "Throughput",
    "WeightAveraging",
]
