"""Networks exported with free height and width equal PyTorch at sizes of other remainders than the example's."""

import pytest
import torch
from torch import nn

from mmlisa.export.whole import Exportable
from mmlisa.export.writing import EXAMPLE, write
from mmlisa.registry import MODELS

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")

STAGE = dict(depths=(1,), channels=(16,), num_heads=(2,), mlp_ratios=(1,))
PLAIN = dict(depth=1, channels=16, num_heads=2, mlp_ratio=1)
BLOCK = dict(base="isotropic", **STAGE)
EVERY_COMMIT = [dict(type="FLattenDeiT", arch=dict(PLAIN, base="tiny"))]
# Networks whose graph has windows, landmarks, pooling, positions or kernels; the pretraining size is 224.
NETWORKS = [
    dict(type="FLattenSwin", arch=dict(STAGE, base="tiny", depths=(2,)), attn_type="S"),
    dict(type="FLattenSwin", arch=dict(STAGE, base="pola-tiny"), attn_type="A"),
    dict(type="FLattenCSwin", arch=dict(STAGE, base="tiny", split_sizes=(3,)), attn_type="S"),
    dict(type="FLattenPVT", arch=dict(STAGE, base="tiny", sr_ratios=(4,)), attn_type="S"),
    dict(type="FLattenPVTv2", arch=dict(STAGE, base="b0", sr_ratios=(4,)), attn_type="S"),
    dict(type="CastlingDeiT", arch=dict(PLAIN, base="tiny")),
    dict(type="CastlingViT", arch=dict(PLAIN, base="base")),
    dict(
        type="CastlingLeViT",
        arch=dict(base="128", depths=(1, 1), channels=(16, 32), num_heads=(1, 2)),
        out_indices=(0, 1),
    ),
    dict(type="CastlingMViTv2", arch=dict(base="tiny", depths=(1, 1), channels=16)),
    dict(type="LiSANet", arch=dict(STAGE, base="small", strides=(4,), mixers="A")),
    dict(
        type="iViT", arch=dict(base="tiny", depths=(1,), channels=(16,), num_heads=(2,), mixers="A", res_scale=(True,))
    ),
    dict(type="CastlingLCNetViT", arch=dict(base="small", scale=0.25)),
    dict(type="CastlingESNetViT", arch=dict(base="small", scale=0.25)),
    dict(type="InteractiveViT", arch=dict(PLAIN, base="tiny-16")),
    dict(type="MILA", arch=dict(STAGE, base="tiny")),
    dict(type="HViT3", arch=dict(STAGE, base="tiny")),
    dict(type="ViT3", arch=dict(PLAIN, base="tiny")),
    dict(
        type="DINOv2",
        arch=dict(PLAIN, base="small", layer_scale=1.0),
        attention=dict(type="CellAttention", window=4, cells=3),
    ),
    *(
        dict(type="LiSANet", arch=BLOCK, attention=dict(type=operator))
        for operator in (
            "AgentAttention",
            "InLineAttention",
            "LambdaConvolution",
            "MALAAttention",
            "RALAAttention",
            "RelationalSelfAttention",
            "StructureAwareAttention",
        )
    ),
]


@pytest.mark.parametrize(
    "network",
    [*EVERY_COMMIT, *(pytest.param(network, marks=pytest.mark.nightly) for network in NETWORKS)],
    ids=lambda options: options.get("attention", options)["type"],
)
def test_networks(network, tmp_path):
    torch.manual_seed(0)
    backbone = MODELS.get(network["type"])(**{key: value for key, value in network.items() if key != "type"})
    for parameter in backbone.parameters():
        if not parameter.any():  # a layer that starts as 0 would hide those before it
            nn.init.normal_(parameter, std=0.1)
    write(Exportable(backbone), tmp_path / "model.onnx", EXAMPLE, dynamic=True, tolerance=1e-4)
