"""Weights that a module's ``init_cfg`` names, read safely and only once everything else is initialised."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.model import BaseModule, PretrainedInit, update_init_info
from mmengine.registry import WEIGHT_INITIALIZERS
from torch import nn

from mmlisa.checkpoints import below_prefix, load_state_dict, read_checkpoint, state_dict_of

_PRETRAINED = ("Pretrained", "PretrainedInit", PretrainedInit)
_PUBLISHED = "mmlisa.PublishedWeights"


@contextmanager
def loading_from_init_cfg(module: BaseModule) -> Iterator[None]:
    """Wrap MMEngine's ``init_weights`` and read ``Pretrained`` and ``mmlisa.PublishedWeights`` of ``module.init_cfg`` after it.

    The files are read by :func:`mmlisa.checkpoints.read_checkpoint`, and thus run no code, in every process. A checkpoint that
    holds less than half of the module is a UserError; ``init_cfg=dict(type='Pretrained', …, min_matched=0)`` changes that share.
    """
    init_cfg = module.init_cfg
    configs = [init_cfg] if isinstance(init_cfg, dict) else list(init_cfg or [])
    files = [cfg for cfg in configs if cfg.get("type") in (*_PRETRAINED, _PUBLISHED)] if not module.is_init else []
    module.init_cfg = [cfg for cfg in configs if cfg not in files] or None
    try:
        yield
    finally:
        module.init_cfg = init_cfg
    for cfg in files:
        if cfg["type"] == _PUBLISHED:
            WEIGHT_INITIALIZERS.build(cfg)(module)
        else:
            _load_pretrained(module, **{key: value for key, value in cfg.items() if key != "type"})
        if hasattr(module, "_params_init_info"):
            update_init_info(module, f"loaded from {cfg.get('checkpoint', cfg.get('source'))}")


def _load_pretrained(
    module: nn.Module,
    checkpoint: str,
    prefix: str | None = None,
    map_location: str | torch.device = "cpu",
    min_matched: float = 0.5,
) -> None:
    state = state_dict_of(read_checkpoint(checkpoint, map_location), checkpoint)
    if prefix is not None:
        state = below_prefix(state, prefix.rstrip(".") + ".")
    load_state_dict(module, state, f"{checkpoint}, prefix={prefix!r}", min_matched)
