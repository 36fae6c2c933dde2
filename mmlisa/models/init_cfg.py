"""Weights that a module's ``init_cfg`` names, read safely and only once everything else is initialised."""

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.model import BaseModule, PretrainedInit, update_init_info
from mmengine.registry import WEIGHT_INITIALIZERS
from torch import nn

from mmlisa.checkpoints import below_prefix, fresh_in_a_start, load_checkpoint, read_checkpoint, state_dict_of

_PRETRAINED = ("Pretrained", "PretrainedInit", PretrainedInit)
_PUBLISHED = "mmlisa.PublishedWeights"


class SafeInit:
    """Mixin of MMEngine's modules, before ``BaseModule`` among the bases: the files of ``init_cfg`` run no code.

    ``Pretrained`` and ``mmlisa.PublishedWeights`` of ``init_cfg`` are read by :func:`mmlisa.checkpoints.read_checkpoint`, in each
    process, and loaded after everything else. A file of another module is a UserError, see :func:`mmlisa.checkpoints.judge`;
    ``init_cfg=dict(type='Pretrained', …, may_differ=['stem'])`` names what may differ.
    """

    def init_weights(self: BaseModule) -> None:
        """Initialise as MMEngine does, then by :meth:`init_more`, then from the files of ``init_cfg``."""
        if self.is_init:
            super().init_weights()  # warns
            return
        init_cfg = self.init_cfg
        configs = [init_cfg] if isinstance(init_cfg, dict) else list(init_cfg or [])
        files = [cfg for cfg in configs if cfg.get("type") in (*_PRETRAINED, _PUBLISHED)]
        self.init_cfg = [cfg for cfg in configs if cfg not in files] or None
        try:
            super().init_weights()
        finally:
            self.init_cfg = init_cfg
        self.init_more()
        for cfg in files:
            _load(self, cfg)

    def init_more(self) -> None:
        """Initialise what ``init_cfg`` does not; called once."""


def _load(module: BaseModule, cfg: dict[str, Any]) -> None:
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
    may_differ: Sequence[str] = (),
) -> None:
    content = read_checkpoint(checkpoint, map_location)
    state = state_dict_of(content, checkpoint)
    if prefix is not None:
        state = below_prefix(state, prefix.rstrip(".") + ".")
    own = {"state_dict": state, "meta": content.get("meta")}
    load_checkpoint(module, own, checkpoint, [*may_differ, *fresh_in_a_start(module, own)])
