"""The smallest networks of timm that our backbones extend, and the backbones with the hosts' own attention."""

import timm
from torch import nn

from mmlisa.models import backbones

_WIDTHS = dict(depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8))
_NARROW = dict(_WIDTHS, channels=(16, 32, 64, 128))
_PLAIN = dict(base="tiny", depth=2, channels=32, num_heads=2)
# timm interpolates positions in another way: images of (64, 96), or a little less, need none.
_VIT = dict(depth=2, num_heads=2, embed_dim=32, img_size=(64, 96), dynamic_img_size=True, dynamic_img_pad=True)
_SOFTMAX = dict(attention=dict(type="SoftmaxAttention"), image_size=(64, 96))
# timm's network and its options; our backbone; sizes of images that both take.
HOSTS = {
    "swin": ("swin_tiny_patch4_window7_224", dict(_WIDTHS, embed_dim=16, strict_img_size=False),
             dict(type="FLattenSwin", arch=dict(base="tiny", **_NARROW), attn_type="SSSS", out_indices=(3,)),
             [(224, 224), (448, 448)]),  # where windows do not divide the map, timm pads after the shift, Swin before
    "pvtv2": ("pvt_v2_b0", dict(embed_dims=(16, 32, 64, 128), num_heads=(1, 2, 4, 8)),
              dict(type="FLattenPVTv2", arch=dict(base="b0", **_NARROW), attn_type="SSSS", out_indices=(3,)),
              [(64, 64), (100, 167)]),
    "deit": ("deit_tiny_patch16_224", _VIT, dict(type="FLattenDeiT", arch=_PLAIN, **_SOFTMAX), [(64, 96), (60, 90)]),
    "vit": ("vit_tiny_patch16_224", _VIT,
            dict(type="CastlingDeiT", arch=dict(_PLAIN, mlp_conv=None), out_type="cls_token", **_SOFTMAX), [(60, 90)]),
    "caformer": ("caformer_s18", {},
                 dict(type="iViT", arch="tiny", output_norm=False,
                      attention=dict(landmarks=None, mix_before=False, mix_after=False)),
                 [(64, 64), (77, 101)]),
    "levit": ("levit_128s", dict(img_size=96),
              dict(type="CastlingLeViT", image_size=96, attention=dict(type="LeViTAttention", head_dims=16),
                   arch=dict(base="128", depths=(2, 3, 4), num_heads=(4, 6, 8), downsample="subsample", mlp_conv=None)),
              [(96, 96)]),
    "mvitv2": ("mvitv2_tiny", dict(img_size=96),
               dict(type="CastlingMViTv2", arch=dict(base="tiny", castled=False), image_size=96, out_indices=(3,)),
               [(96, 96)]),
    "lcnet": ("lcnet_050", {}, dict(type="LCNet", arch="x0.5"), [(96, 96), (67, 101)]),
}  # fmt: skip


def build(host: str, size: tuple[int, int] = (224, 224)) -> tuple[nn.Module, nn.Module]:
    """Our backbone and timm's network; timm's Swin decides at creation which maps are a single window."""
    name, options, config, _ = HOSTS[host]
    theirs = timm.create_model(name, **options, **(dict(img_size=size) if host == "swin" else {}))
    config = dict(config)
    return getattr(backbones, config.pop("type"))(**config), theirs
