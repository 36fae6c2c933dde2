"""Another attention in a network that is loaded already, and how well its features agree with the first one's."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from timm.layers import Attention
from timm.models import Eva, VisionTransformer
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.attention import build_attention, with_rotary
from mmlisa.models.attention.softmax import SoftmaxAttention
from mmlisa.models.backbones.base import Backbone


def swap(
    model: nn.Module, attention: Mapping[str, Any] | None = None, *, blocks: Collection[int] | None = None
) -> nn.Module:
    """Return a copy of a network whose softmax attentions are another operator. Network and copy share their weights.

    Parameters that softmax attention does not have start anew, with a warning: such an operator needs training.

    Args:
        model: a network with backbones of mmlisa or ViTs of timm in it, also under heads.
        attention: config of the operator, ``dict(type="CellAttention")`` by default.
        blocks: indices of the attentions that are exchanged, in the order of the network; None for all.

    Raises:
        UserError: no attention that can be exchanged, an index that does not exist, or an operator with other projections.
    """
    config = dict(attention or {"type": "CellAttention"})
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copy = deepcopy(model, shared)
    places = [place for module in copy.modules() for place in _places(module)]
    if not places:
        raise UserError(
            f"{type(model).__name__} has no softmax attention of mmlisa's backbones or of timm's VisionTransformer"
        )
    if blocks is not None and not all(-len(places) <= index < len(places) for index in blocks):
        raise UserError(f"blocks={list(blocks)}; {type(model).__name__} has {len(places)} softmax attentions")
    chosen = range(len(places)) if blocks is None else {index % len(places) for index in blocks}
    fresh = set()
    for index in chosen:
        place = places[index]
        operator = _build(place.old, config, place.grid)
        fresh |= {name for name, _ in operator.named_parameters() if not name.startswith(("qkv.", "proj."))}
        new = operator if isinstance(place.old, SoftmaxAttention) else _OnNotedGrid(operator, place.old.proj_drop)
        setattr(place.parent, place.name, new.train(place.old.training))
    if fresh:
        warnings.warn(f"{config['type']} has parameters that start untrained: {', '.join(sorted(fresh))}", stacklevel=2)
    return copy


def agreement(features: Tensor, reference: Tensor) -> Tensor:
    """Return the mean cosine of the tokens of two maps ``[B, C, H, W]``, both less the mean of the reference's tokens.

    With that mean, which all tokens of an image share, different features would look alike.
    """
    mean = reference.mean((2, 3), keepdim=True)
    return F.cosine_similarity(features - mean, reference - mean, dim=1).mean()


@dataclass(frozen=True)
class _Place:
    """An attention, the module that has it under a name, and the pretraining grid."""

    old: nn.Module
    parent: nn.Module
    name: str
    grid: tuple[int, ...]


def _places(module: nn.Module) -> list[_Place]:
    """Return the softmax attentions of a backbone, in their order; none for any other module."""
    if isinstance(module, Eva):
        raise UserError("timm's Eva turns its queries within the attention; take mmlisa.DINOv3 with the same weights")
    if isinstance(module, VisionTransformer):
        for block in module.blocks:
            _check_timm(block.attn)
        module.patch_embed.register_forward_pre_hook(_note_grid)
        return [_Place(block.attn, block, "attn", module.patch_embed.grid_size) for block in module.blocks]
    if not isinstance(module, Backbone):
        return []
    places = []
    for index, stage in enumerate(module.stages):
        for parent in stage.modules():
            for name, child in parent.named_children():
                if type(child) is SoftmaxAttention and child.rpe is None:
                    places.append(_Place(child, parent, name, module.stage_grid(index)))
    return places


def _check_timm(old: nn.Module) -> None:
    """Raise UserError for an attention of timm that computes more than softmax attention between its projections."""
    if type(old) is not Attention:
        raise UserError(f"{type(old).__name__} of timm is not its Attention; this network cannot be swapped")
    more = [name for name in ("q_norm", "k_norm", "norm") if not isinstance(getattr(old, name), nn.Identity)]
    if getattr(old, "gate", None) is not None:  # older versions of timm have none
        more.append("gate")
    if old.attn_drop.p:
        more.append("attn_drop")
    if more:
        raise UserError(f"timm's Attention has {', '.join(more)}, for which no operator of mmlisa has a place")


def _build(old: nn.Module, config: Mapping[str, Any], grid: Sequence[int]) -> nn.Module:
    """Build an operator around the projections of a softmax attention, and with its rotary positions."""
    new = build_attention(dict(config), old.qkv.in_features, old.num_heads, grid)
    for name in ("qkv", "proj"):
        theirs, ours = getattr(old, name), getattr(new, name, None)
        if not isinstance(ours, nn.Linear) or ours.weight.shape != theirs.weight.shape:
            raise UserError(f"attention={dict(config)!r} has another projection {name} than softmax attention")
        setattr(new, name, theirs)
    if getattr(old, "rotary", None) is not None:
        with_rotary(new, old.rotary)
    return new.to(old.qkv.weight.device, old.qkv.weight.dtype)


# timm's blocks do not know the grid of their tokens. It is noted by the patch embedding, for each thread by itself.
NOTED_GRID: ContextVar[tuple[int, int]] = ContextVar("NOTED_GRID")


def _note_grid(patch_embed: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    NOTED_GRID.set(tuple(patch_embed.dynamic_feat_size(inputs[0].shape[-2:])))


class _OnNotedGrid(nn.Module):
    """An operator in the place of timm's ``Attention``, ``[B, N, C] -> [B, N, C]``."""

    def __init__(self, operator: nn.Module, drop: nn.Module) -> None:
        super().__init__()
        self.operator, self.drop = operator, drop

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        if attn_mask is not None or is_causal:
            raise UserError("attn_mask and is_causal have no meaning for this attention; leave them out")
        return self.drop(self.operator(x, NOTED_GRID.get()))
