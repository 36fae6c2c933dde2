"""Checkpoints in, safely; and out, whole."""

from .checksum import add_checksum
from .download import fetch_checkpoint, use_safe_loader
from .latest import latest_checkpoint, read_ahead
from .loading import adapt_state_dict, check_share, check_values, load_weights, loading_from_init_cfg, match_report
from .reading import CheckpointError, load_checkpoint
from .writing import save_checkpoint, writing_whole

__all__ = [
    "CheckpointError",
    "adapt_state_dict",
    "add_checksum",
    "check_share",
    "check_values",
    "fetch_checkpoint",
    "latest_checkpoint",
    "load_checkpoint",
    "load_weights",
    "loading_from_init_cfg",
    "match_report",
    "read_ahead",
    "save_checkpoint",
    "use_safe_loader",
    "writing_whole",
]
