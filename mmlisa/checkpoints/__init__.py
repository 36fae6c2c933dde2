"""Safe reading of checkpoints, matching with a model, and atomic writing."""

from .loading import (
    adapt_state_dict,
    below_prefix,
    check_match,
    load_state_dict,
    load_weights,
    match_report,
    state_dict_of,
)
from .reading import CheckpointError, download, latest_checkpoint, read_checkpoint, use_safe_loader
from .writing import atomic_path, save_checkpoint, writing_whole
