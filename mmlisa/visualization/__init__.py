"""Pictures of predictions, attention kernels, attention matrices and training curves, and the hooks that draw them."""

from .curves import TrainingCurvesHook
from .overlays import OverlayHook
