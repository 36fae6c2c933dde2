"""Checkpoints: read without running code, judged against a model, written completely or not at all."""

from .fitting import (
    Part,
    adapt_channels,
    adapt_state_dict,
    below_prefix,
    compare,
    fresh_in_a_start,
    judge,
    list_classes,
    load_checkpoint,
    load_weights,
    saved_metainfo,
    state_dict_of,
)
from .reading import (
    NUMPY,
    CheckpointError,
    averaged_entry,
    download,
    latest_checkpoint,
    note_averages,
    read_checkpoint,
    use_safe_loader,
)
from .writing import atomic_path, save_checkpoint, write_file, writing_whole
