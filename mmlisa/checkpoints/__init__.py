"""Checkpoints in, safely."""

from .loading import latest_checkpoint, load_checkpoint, load_weights, match_report, use_safe_loader

__all__ = ["latest_checkpoint", "load_checkpoint", "load_weights", "match_report", "use_safe_loader"]
