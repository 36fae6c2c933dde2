"""Parameters and multiply-accumulate operations (MACs) of a model, by PyTorch's ``FlopCounterMode``.

On the meta device nothing is computed or allocated. FFTs and element-wise operations count nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, register_flop_formula, sdpa_flop_count

import mmlisa.ops.circular  # noqa: F401 (registers LiSA's operations)


class Complexity(NamedTuple):
    """Parameters of a model, and MACs of its convolutions, linear layers and matrix products."""

    parameters: int
    macs: float


_LISA = torch.ops.mmlisa
# PyTorch has no formula for its fused attention on CPUs.
_CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


@register_flop_formula(
    [_LISA.lisa_encode_fft, _LISA.lisa_encode_circulant, _LISA.lisa_mix_fft, _LISA.lisa_mix_circulant]
)
def _lisa(first: torch.Size, *_: Any, out_shape: torch.Size, **__: Any) -> int:
    """Count 2 D N C FLOPs for each side of LiSA, as Table 4 of its journal version does for any evaluation."""
    return 2 * first[1] * out_shape.numel()


def count(model: nn.Module, *inputs: Any, forward: Callable[..., Any] | None = None) -> Complexity:
    """Count one forward pass, or that of ``forward(model, *inputs)`` if given. The model stays in evaluation mode."""
    model.eval()
    formulas = {_CPU_ATTENTION: lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)}
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        (forward or nn.Module.__call__)(model, *inputs)
    return Complexity(sum(p.numel() for p in model.parameters()), counter.get_total_flops() / 2)


def forward_tables(model: nn.Module, image: Tensor) -> None:
    """Run the part of an OpenMMLab model that tables of papers count, as MMDetection's ``get_flops`` does.

    The box head of a two-stage detector runs on 1000 proposals and the mask head on 100. Deformable attention does not run on the
    meta device: of Mask2Former only the backbone is counted, of DINO only backbone and neck.
    """
    if hasattr(getattr(model, "decode_head", None), "transformer_decoder"):
        model.backbone(image)
    elif hasattr(model, "panoptic_head") or hasattr(model, "dn_query_generator"):
        model.extract_feat(image)
    elif not hasattr(model, "roi_head"):
        model(image)
    else:
        features = model.extract_feat(image)
        model.rpn_head(features)
        for branch, num_rois in (("bbox", 1000), ("mask", 100)):
            heads = getattr(model.roi_head, f"{branch}_head", ())
            extractors = getattr(model.roi_head, f"{branch}_roi_extractor", ())
            if isinstance(heads, nn.Module) and not isinstance(heads, nn.ModuleList):  # not a cascade
                heads, extractors = [heads], [extractors]
            for head, extractor in zip(heads, extractors, strict=True):
                head(features[0].new_empty(num_rois, extractor.out_channels, *extractor.roi_layers[0].output_size))
