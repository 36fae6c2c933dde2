"""What mmlisa adds to MMEngine's training loop."""

from .castling import CastlingHook
from .cpu import optimize_for_cpu
from .ema import CycleEMAHook, ThresholdEMA
from .hooks import CheckpointGuardHook, DataCheckHook, FiniteLossHook
from .interrupts import InterruptHook
from .loops import EpochBasedTrainLoop
from .optimizers import Lamb, LayerwiseOptimWrapperConstructor
from .saving import CheckpointHook
from .seeding import IterationSeedHook

__all__ = [
    "CastlingHook",
    "CheckpointGuardHook",
    "CheckpointHook",
    "CycleEMAHook",
    "DataCheckHook",
    "EpochBasedTrainLoop",
    "FiniteLossHook",
    "InterruptHook",
    "IterationSeedHook",
    "Lamb",
    "LayerwiseOptimWrapperConstructor",
    "ThresholdEMA",
    "optimize_for_cpu",
]
