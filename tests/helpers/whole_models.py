"""Demo models with random weights whose results differ from place to place, and images for them."""

from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmlisa.models.backbones import LCNet
from mmlisa.training.config import load_config

# One detector of each kind of head
DETECTORS = [
    "mask_rcnn_hylisanet",
    "cascade_mask_rcnn_flatten_swin",
    "retinanet_flatten_swin",
    "rtmdet_castling_lcnet",
    "yolox_castling_esnet",
    "picodet_castling_lcnet",
    "dino_ivit",  # an export of it has a fixed size
]
SIZE = (150, 190)  # not square, not multiples of 32


def image(size: tuple[int, int] = SIZE) -> torch.Tensor:
    """``[1, 3, H, W]``, RGB, integers from 0 to 255."""
    coarse = torch.rand(1, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    return (nn.functional.interpolate(coarse, size, mode="bicubic").clamp(0, 1) * 255).round()


@torch.no_grad()
def predict(model: nn.Module, scope: str, size: tuple[int, int] = SIZE) -> Any:
    """The data sample of the model's own library for :func:`image`."""
    from mmdet.structures import DetDataSample
    from mmseg.structures import SegDataSample

    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1.0, 1.0))
    inputs = [image(size)[0].flip(0).to(torch.uint8)]  # BGR
    if scope == "mmpretrain":
        return model.test_step(dict(inputs=torch.stack(inputs)))[0]
    sample = (DetDataSample if scope == "mmdet" else SegDataSample)(metainfo=meta)
    return model.test_step(dict(inputs=inputs, data_samples=[sample]))[0]


def keep(x: torch.Tensor, exact: bool = False) -> torch.Tensor:
    """The ``cut`` that cuts nothing."""
    return x


def put_on_lcnet(cfg: Config) -> None:
    """Give a demo model a light backbone of convolutions, with which an export of free sizes takes seconds."""
    model = cfg.model
    model.pop("auxiliary_head", None)
    channels = LCNet("x0.25").feature_channels
    if model.type == "ImageClassifier":
        model.head.in_channels, levels = channels[-1], [3]
    else:
        user = model.get("neck") or model.decode_head
        levels = range(4 - len(user.in_channels), 4)
        user.in_channels = [channels[level] for level in levels]
    model.backbone = dict(type="mmlisa.LCNet", arch="x0.25", out_indices=list(levels))


def build(name: str) -> nn.Module:
    """A demo model on a light backbone; its heads have random biases, so that scores differ between classes and priors."""
    cfg = load_config(f"{name}_demo.py")
    put_on_lcnet(cfg)
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    for parameter_name, parameter in model.named_parameters():
        if "head" in parameter_name and parameter_name.endswith("bias") and parameter.ndim == 1:
            nn.init.normal_(parameter, std=0.3)
    # With the statistics of a batch, results depend on the image, and scores differ from place to place.
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.momentum = 1.0
    with torch.no_grad():
        one, noise = image((160, 192)), torch.rand(1, 3, 160, 192) * 255
        maps = model.train().extract_feat(torch.cat([one, 255 - one, noise, torch.full_like(one, 20)]) / 64 - 2)
        if hasattr(model, "bbox_head") and not hasattr(model, "decoder"):
            model.bbox_head(maps)
        for layer_name, layer in model.named_modules():
            if isinstance(layer, nn.Conv2d) and ("predictors" in layer_name or "multi_level_conv_reg" in layer_name):
                layer.weight.mul_(0.1)  # PicoDet's scores would all be 1, and the sides of YOLOX's boxes infinite
    return model.eval()
