"""Safe reading of checkpoints, and writing them whole."""

from .checksum import add_checksum
from .download import fetch_checkpoint, local_file, use_safe_loader
from .latest import latest_checkpoint
from .loading import (
    adapt_state_dict,
    below_prefix,
    check_share,
    check_values,
    load_state_dict,
    load_weights,
    match_report,
    state_dict_of,
)
from .reading import CheckpointError, load_checkpoint, outline
from .writing import save_checkpoint, writing_whole
