"""Safe reading of checkpoints, and writing them whole."""

from .checksum import add_checksum
from .download import fetch_checkpoint, local_file, use_safe_loader
from .latest import latest_checkpoint
from .loading import (
    adapt_state_dict,
    check_share,
    check_values,
    load_state_dict,
    load_weights,
    match_report,
    state_dict_of,
)
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
    "load_state_dict",
    "load_weights",
    "local_file",
    "match_report",
    "save_checkpoint",
    "state_dict_of",
    "use_safe_loader",
    "writing_whole",
]
