"""Lightning callbacks: checkpoints, outputs, progress, reproducibility and checks."""

from attnlab.training.callbacks.checkpoints import BestCheckpoint, Interruption, LastCheckpoint
from attnlab.training.callbacks.guard import Guard
from attnlab.training.callbacks.outputs import AttentionFigures, AttentionWeights, Predictions
from attnlab.training.callbacks.progress import (
    BusyCores,
    EpochLog,
    LearningRate,
    NetworkSummary,
    ProgressBar,
    Throughput,
)
from attnlab.training.callbacks.reproducibility import EpochDigests, Reproducible
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
