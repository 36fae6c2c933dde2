"""Heads that look at queries: DETR and its relatives."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from .boxes import Boxes, clip_boxes


def transformer(model: nn.Module, image: Tensor, limits: Tensor) -> Boxes:
    """DETR, Conditional DETR, DAB-DETR, Deformable DETR and DINO: the best queries, without suppression.

    The ``pre_transformer`` of Deformable DETR and DINO holds the sizes of the maps in tensors, from which a recorded graph cannot
    take them. Here they are numbers, which :class:`DeformableAttention` reads.
    """
    maps, size = model.extract_feat(image), tuple(image.shape[2:])  # the queries know the padded image only
    sample = SimpleNamespace(img_shape=size, batch_input_shape=size, metainfo=dict(img_shape=size))
    if hasattr(model, "level_embed"):
        shared = dict(spatial_shapes=[tuple(x.shape[2:]) for x in maps], level_start_index=None)
        shared["valid_ratios"] = image.new_ones(1, len(maps), 2)
        positions = [model.positional_encoding(None, input=x) for x in maps]
        positions = [x + level[:, None, None] for x, level in zip(positions, model.level_embed, strict=True)]
        encoded = model.forward_encoder(_tokens(maps), None, _tokens(positions), **shared)
        queries, _ = model.pre_decoder(**encoded)
        decoded = model.forward_decoder(memory_mask=None, **queries, **shared)
    else:
        decoded = model.forward_transformer(maps, [sample])
    (found,) = model.bbox_head.predict(**decoded, batch_data_samples=[sample], rescale=False)
    return clip_boxes(found.bboxes, limits), found.scores, found.labels


class DeformableAttention(nn.Module):
    """mmcv's ``MultiScaleDeformableAttention``, with the sizes of the maps as numbers instead of a tensor."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.samples = (attention.num_heads, attention.num_levels, attention.num_points)
        for name, layer in attention.named_children():  # under their names, so that checkpoints fit
            self.add_module(name, layer)

    def forward(
        self,
        query: Tensor,
        *,
        value: Tensor,
        reference_points: Tensor,
        spatial_shapes: Sequence[tuple[int, int]],
        query_pos: Tensor | None = None,
        identity: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """``query [B, Q, C]``, ``value [B, N, C]``, ``reference_points [B, Q, L, 2 or 4]`` -> ``[B, Q, C]``."""
        from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        heads, *samples = self.samples
        offsets = self.sampling_offsets(query).unflatten(2, (heads, *samples, 2))
        weights = self.attention_weights(query).unflatten(2, (heads, -1)).softmax(dim=-1).unflatten(3, samples)
        reference = reference_points[:, :, None, :, None]
        if reference.shape[-1] == 2:
            sides = torch.stack([value.new_zeros(()) + side for h, w in spatial_shapes for side in (w, h)])
            scale = 1 / sides.view(-1, 1, 2)
        else:
            scale = reference[..., 2:] * (0.5 / samples[1])
        value = self.value_proj(value).unflatten(2, (heads, -1))
        attended = multi_scale_deformable_attn_pytorch(
            value, spatial_shapes, reference[..., :2] + offsets * scale, weights
        )
        return self.output_proj(attended) + identity


def _tokens(maps: Sequence[Tensor]) -> Tensor:
    """``[B, C, H_l, W_l]`` of all levels ``l`` -> ``[B, N, C]``."""
    return torch.cat([x.flatten(2) for x in maps], dim=2).transpose(1, 2)
