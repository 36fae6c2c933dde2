"""What mmlisa adds to MMEngine's training loop."""

from .hooks import CheckpointGuardHook, FiniteLossHook, IterationSeedHook, TrainingCurvesHook
from .optimizers import Lamb

__all__ = ["CheckpointGuardHook", "FiniteLossHook", "IterationSeedHook", "Lamb", "TrainingCurvesHook"]
