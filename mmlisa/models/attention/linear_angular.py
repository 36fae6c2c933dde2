"""Linear-angular attention with its auxiliary branch: what Castling-ViT trains, and what it keeps."""

import torch
from torch import Tensor, nn

from mmlisa import ops
from mmlisa.registry import MODELS

from .projected import ProjectedAttention


@MODELS.register_module()
class LinearAngularAttention(ProjectedAttention):
    """``proj(norm(v / 2 + q̂ (k̂ᵀ v) / π + aux) + DConv(v))`` (You et al., "Castling-ViT", Eqs. 9-10), norm: L2 over a head.

    The auxiliary branch, a masked softmax attention, has no parameters: a checkpoint is the same with it and without.

    Args:
        embed_dims: channels C.
        num_heads: heads h.
        conv_size: see :class:`ProjectedAttention`; 9 is the paper's.
        aux: train with the auxiliary branch.
        aux_in_eval: keep it in eval mode, to see what dropping it costs.
        epsilon: threshold of its mask, a buffer that a schedule may change (:class:`mmlisa.engine.CastlingHook`).
        **options: ``grid, head_dims, qkv_bias, pooled``, see :class:`ProjectedAttention`.

    Attributes:
        mask_count: non-zero entries per image in the last mask of the auxiliary branch, over all heads; None before the first.
        mask_size: entries of that mask per image.
    """

    epsilon: Tensor

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        *,
        conv_size: int | None = 9,
        aux: bool = False,
        aux_in_eval: bool = False,
        epsilon: float = 0.02,
        **options,
    ) -> None:
        super().__init__(embed_dims, num_heads, conv_size=conv_size, **options)
        self.aux, self.aux_in_eval = aux, aux_in_eval
        # Not persistent: a schedule knows its value at any time, and checkpoints stay free of it.
        self.register_buffer("epsilon", torch.tensor(float(epsilon)), persistent=False)
        self.mask_count: Tensor | None = None
        self.mask_size = 0

    def drop_aux(self) -> None:
        """Castling: from now on only the linear-angular terms, in training too."""
        self.aux = False

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        y = ops.linear_angular(query, key, value)
        if self.aux and (self.training or self.aux_in_eval):
            attended, mask = ops.masked_softmax(query, key, value, self.epsilon)
            self.mask_count, self.mask_size = mask.sum() / len(mask), mask[0].numel()
            y = y + attended
        return ops.unit(y)


def castling_operators(model: nn.Module) -> dict[str, LinearAngularAttention]:
    """The operators of ``model`` whose auxiliary branch is there, by name and in order."""
    return {name: m for name, m in model.named_modules() if isinstance(m, LinearAngularAttention) and m.aux}


def drop_aux(model: nn.Module) -> int:
    """Drops every auxiliary branch of ``model``, for good; returns how many there were."""
    operators = castling_operators(model)
    for operator in operators.values():
        operator.drop_aux()
    return len(operators)
