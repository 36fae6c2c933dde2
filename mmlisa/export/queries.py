"""Heads that look at queries: DETR and its relatives."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mmlisa.ops.context import is_traced

from .boxes import Boxes, Cut, clip_boxes, predictor, top


def transformer(model: nn.Module, image: Tensor, limits: Tensor, thresholds: Sequence[Tensor], cut: Cut) -> Boxes:
    """DETR, Conditional DETR, DAB-DETR, Deformable DETR and DINO: the best queries, without suppression.

    The ``pre_transformer`` of Deformable DETR and DINO holds the sizes of the maps in tensors, from which a recorded graph cannot
    take them. There they are numbers, which :class:`DeformableAttention` reads.
    """
    maps, size, head = model.extract_feat(image), tuple(image.shape[2:]), model.bbox_head
    if hasattr(model, "level_embed"):
        sides = [tuple(x.shape[2:]) for x in maps]
        shared = dict(spatial_shapes=sides if is_traced() else torch.tensor(sides), level_start_index=None)
        shared["valid_ratios"] = image.new_ones(1, len(maps), 2)
        positions = [model.positional_encoding(None, input=x) for x in maps]
        positions = [x + level[:, None, None] for x, level in zip(positions, model.level_embed, strict=True)]
        encoded = model.forward_encoder(_tokens(maps), None, _tokens(positions), **shared)
        queries = _choose(model, encoded, cut) if model.as_two_stage else model.pre_decoder(**encoded)[0]
        decoded = model.forward_decoder(memory_mask=None, **queries, **shared)
    else:
        sample = SimpleNamespace(img_shape=size, batch_input_shape=size, metainfo=dict(img_shape=size))
        decoded = model.forward_transformer(maps, [sample])
    if predictor(head) == "DETRHead":  # the layers before the last one are not needed
        decoded = {name: x[-1:] for name, x in decoded.items()}
    scores, boxes = (cut(layers[-1][0]) for layers in head(**decoded))
    count = head.test_cfg.get("max_per_img", scores.shape[0])
    if head.loss_cls.use_sigmoid:
        best, index = top(cut(scores.sigmoid(), exact=True).flatten(), count)
        row, labels = index // scores.shape[1], index % scores.shape[1]
    else:
        best, labels = cut(scores.softmax(dim=1), exact=True)[:, :-1].max(dim=1)
        best, row = top(best, count)
        labels = labels[row]
    centres, sides = boxes[row].split(2, dim=1)
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], dim=1)
    # The queries know the padded image only.
    whole = torch.stack([limits.new_zeros(()) + side for side in (*size[::-1], *size[::-1])])
    return clip_boxes(boxes * whole, limits), best, labels


def _choose(model: nn.Module, encoded: dict[str, Any], cut: Cut) -> dict[str, Any]:
    """The best tokens of the encoder as queries: ``pre_decoder`` of DINO and of Deformable DETR with two stages."""
    memory, number, embedding = encoded["memory"], model.decoder.num_layers, getattr(model, "query_embedding", None)
    tokens, places = model.gen_encoder_output_proposals(**encoded)
    scores = cut(model.bbox_head.cls_branches[number](tokens)[0])
    _, index = top(scores[:, 0] if embedding is None else scores.amax(dim=1), model.num_queries)
    boxes = (cut(model.bbox_head.reg_branches[number](tokens)[0]) + places[0])[index][None]
    queries = dict(memory=memory, reference_points=boxes.sigmoid())
    if embedding is not None:
        return queries | dict(query=embedding.weight[None], dn_mask=None)
    position, query = model.pos_trans_norm(model.pos_trans_fc(model.get_proposal_pos_embed(boxes))).chunk(2, dim=2)
    return queries | dict(query=query, query_pos=position)


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
