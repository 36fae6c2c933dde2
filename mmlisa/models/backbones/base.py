"""What every backbone promises: arch tables, checked arguments, freezing, and no silent start from a foreign checkpoint."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from mmlisa.checkpoints import loading_from_init_cfg

MIN_IMAGE_SIZE = 32


class Backbone(BaseModule):
    """Base of all hosts.

    Subclasses fill ``arch_settings``, build their modules, set ``feature_channels`` and ``feature_strides`` (one entry per
    returned map) and name the modules of each stage in :meth:`stage_modules`.

    Args:
        num_stages: number of stages, the bound of ``out_indices`` and ``frozen_stages``.
        out_indices: stages whose maps are returned; negative ones count from the end.
        frozen_stages: -1 trains everything, 0 freezes the stem, n > 0 also the first n stages.
        norm_eval: batch norms keep their running statistics during training.
        with_cp: recompute blocks in the backward pass to save memory.
        init_cfg: MMEngine's.

    Raises:
        ValueError: an index or a number of stages out of range.
    """

    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {}
    feature_channels: tuple[int, ...]
    feature_strides: tuple[int, ...]

    def __init__(
        self,
        *,
        num_stages: int,
        out_indices: Sequence[int],
        frozen_stages: int,
        norm_eval: bool,
        with_cp: bool,
        init_cfg: dict | list[dict] | None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        out_indices = [out_indices] if isinstance(out_indices, int) else out_indices
        if not out_indices or not all(-num_stages <= i < num_stages for i in out_indices):
            raise ValueError(
                f"out_indices={tuple(out_indices)}; a network of {num_stages} stages has 0 to {num_stages - 1}"
            )
        if not -1 <= frozen_stages <= num_stages:
            raise ValueError(f"frozen_stages={frozen_stages}; it must lie between -1 (none) and {num_stages} (all)")
        self.num_stages = num_stages
        self.out_indices = tuple(sorted({i % num_stages for i in out_indices}))
        self.frozen_stages, self.norm_eval, self.with_cp = frozen_stages, norm_eval, with_cp

    @classmethod
    def resolve_arch(cls, arch: str | dict[str, Any]) -> dict[str, Any]:
        """Settings of a named arch; a dict is a complete arch, or one with a ``base`` name and what differs from it.

        Raises:
            ValueError: an unknown name or key.
        """
        delta = {"base": arch} if isinstance(arch, str) else dict(arch)
        base = delta.pop("base", None)
        if base is not None and base not in cls.arch_settings:
            raise ValueError(f"arch {base!r} is not one of {cls.__name__}'s: {sorted(cls.arch_settings)}")
        known = {key for settings in cls.arch_settings.values() for key in settings}
        if unknown := set(delta) - known:
            raise ValueError(f"arch has unknown keys {sorted(unknown)}; {cls.__name__} knows {sorted(known)}")
        return deepcopy({**cls.arch_settings.get(base, {}), **delta})

    def stage_modules(self, stage: int) -> list[nn.Module | nn.Parameter]:
        """Modules and parameters of the stem (``stage=0``) or of the stage number ``stage`` (from 1).

        This is the pyramids': ``embeds`` lead into ``stages``, and ``norm{i}`` follows a stage where there is one.
        """
        if stage == 0:
            return [self.embeds[0]]
        modules = [self.stages[stage - 1]]
        if stage > 1:
            modules.append(self.embeds[stage - 1])
        if hasattr(self, f"norm{stage - 1}"):
            modules.append(getattr(self, f"norm{stage - 1}"))
        return modules

    def check_image(self, image: Tensor) -> None:
        """Raises ValueError for an image ``[B, C, ..., H, W]`` smaller than 32 in height or width."""
        if min(image.shape[-2:]) < MIN_IMAGE_SIZE:
            raise ValueError(
                f"image is {image.shape[-2]}x{image.shape[-1]} (H x W); {type(self).__name__} needs at least "
                f"{MIN_IMAGE_SIZE} in both"
            )

    def run_block(self, block: Callable[..., Any], *args: Any) -> Any:
        """Calls ``block``, under activation checkpointing where ``with_cp`` asks for it."""
        if self.with_cp and self.training and torch.is_grad_enabled():
            return checkpoint(block, *args, use_reentrant=False)
        return block(*args)

    def train(self, mode: bool = True) -> "Backbone":
        super().train(mode)
        frozen = [part for stage in range(self.frozen_stages + 1) for part in self.stage_modules(stage)]
        for part in frozen:
            part.requires_grad_(False)
            if isinstance(part, nn.Module):
                part.eval()
        if self.norm_eval:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def init_weights(self) -> None:
        """MMEngine's; files named in ``init_cfg`` are read safely, once, and refused where less than half of them fits.

        Raises:
            ValueError: such a file, with the counts; see :func:`mmlisa.checkpoints.loading_from_init_cfg`.
        """
        with loading_from_init_cfg(self):
            super().init_weights()
