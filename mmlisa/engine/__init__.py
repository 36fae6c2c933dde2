"""What mmlisa adds to MMEngine's training loop."""

from .castling import CastlingHook
from .ema import CycleEMAHook, ThresholdEMA
from .hooks import CheckpointGuardHook, FiniteLossHook, IterationSeedHook, TrainingCurvesHook
from .optimizers import Lamb, LayerwiseOptimWrapperConstructor

__all__ = [
    "CastlingHook",
    "CheckpointGuardHook",
    "CycleEMAHook",
    "FiniteLossHook",
    "IterationSeedHook",
    "Lamb",
    "LayerwiseOptimWrapperConstructor",
    "ThresholdEMA",
    "TrainingCurvesHook",
]
