"""What mmlisa adds to MMEngine's training loop."""

from .hooks import CheckpointGuardHook, FiniteLossHook, IterationSeedHook, TrainingCurvesHook

__all__ = ["CheckpointGuardHook", "FiniteLossHook", "IterationSeedHook", "TrainingCurvesHook"]
