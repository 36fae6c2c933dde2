"""Networks exported with free height and width equal PyTorch at sizes of other remainders than the example's."""

import pytest
import torch
from torch import nn

from mmlisa.deploy.export import EXAMPLE, Exportable, export, largest_difference
from mmlisa.models import backbones
from mmlisa.registry import MODELS

pytest.importorskip("onnxruntime")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8, and say so"),
]

STAGE = dict(depths=(1,), channels=(16,), num_heads=(2,), mlp_ratios=(1,))
PLAIN = dict(depth=1, channels=16, num_heads=2, mlp_ratio=1)
LEVIT = dict(base="128", depths=(1, 1), channels=(16, 32), num_heads=(1, 2))
# Networks whose graph has windows, landmarks, pooling, positions or kernels; the pretraining size is 224.
NETWORKS = {
    "swin": dict(type="FLattenSwin", arch=dict(STAGE, base="tiny", depths=(2,)), attn_type="S"),
    "swin-windows": dict(
        type="FLattenSwin",
        arch=dict(STAGE, base="tiny", depths=(2,)),
        attention=dict(window=5, shift=True),
        attn_type="A",
    ),
    "pola-swin": dict(type="FLattenSwin", arch=dict(STAGE, base="pola-tiny"), attn_type="A"),
    "cswin": dict(type="FLattenCSwin", arch=dict(STAGE, base="tiny", split_sizes=(3,)), attn_type="S"),
    "pvt": dict(type="FLattenPVT", arch=dict(STAGE, base="tiny", sr_ratios=(4,)), attn_type="S"),
    "pvtv2": dict(type="FLattenPVTv2", arch=dict(STAGE, base="b0", sr_ratios=(4,)), attn_type="S"),
    "deit": dict(type="FLattenDeiT", arch=dict(PLAIN, base="tiny")),
    "castling-deit": dict(type="CastlingDeiT", arch=dict(PLAIN, base="tiny")),
    "castling-vit": dict(type="CastlingViT", arch=dict(PLAIN, base="base")),
    "levit": dict(type="CastlingLeViT", arch=LEVIT, out_indices=(0, 1)),
    "levit-own-attention": dict(
        type="CastlingLeViT",
        arch=dict(LEVIT, downsample="subsample", mlp_conv=None),
        attention=dict(type="LeViTAttention", head_dims=16),
        out_indices=(0, 1),
    ),
    "mvitv2": dict(type="CastlingMViTv2", arch=dict(base="tiny", depths=(1, 1), channels=16)),
    "lisanet": dict(type="LiSANet", arch=dict(STAGE, base="small", strides=(4,), mixers="A")),
    "ivit": dict(
        type="iViT",
        arch=dict(base="tiny", depths=(1,), channels=(16,), num_heads=(2,), mixers="A", res_scale=(True,)),
    ),
    "lcnet-vit": dict(type="CastlingLCNetViT", arch=dict(base="small", scale=0.25)),
    "esnet-vit": dict(type="CastlingESNetViT", arch=dict(base="small", scale=0.25)),
    "interactive-vit": dict(type="InteractiveViT", arch=dict(PLAIN, base="tiny-16")),
    "mila": dict(type="MILA", arch=dict(STAGE, base="tiny")),
    "h-vit3": dict(type="HViT3", arch=dict(STAGE, base="tiny")),
    "vit3": dict(type="ViT3", arch=dict(PLAIN, base="tiny")),
}
# The operators are compared in one block of a host.
OPERATORS = [
    "AgentAttention",
    "InLineAttention",
    "LambdaConvolution",
    "MALAAttention",
    "RALAAttention",
    "RelationalSelfAttention",
    "StructureAwareAttention",
]
# The pretraining size, sizes of other remainders, a map with a side shorter than two windows, and odd grids.
SIZES = [(224, 224), (96, 96), (336, 96), (64, 160), (101, 203)]


class Model(nn.Module):
    """As much of a model as the export of a backbone looks at."""

    def __init__(self, type: str, **options) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = MODELS.get(type)(**options)
        for parameter in self.parameters():
            if not parameter.any():  # a layer that starts as 0 would hide those before it
                nn.init.normal_(parameter, std=0.1)


def one_block(operator: str) -> Exportable:
    arch = dict(base="isotropic", depths=(1,), channels=(16,), num_heads=(2,), mlp_ratios=(1,))
    return Exportable(Model("LiSANet", arch=arch, attention=dict(type=operator)), True)


def check(module: nn.Module, out) -> None:
    export(module, out, EXAMPLE, dynamic=True)
    tolerance = max(10 * largest_difference(module, out, EXAMPLE), 1e-6)
    assert tolerance < 2e-5
    for size in SIZES:
        assert largest_difference(module, out, size) < tolerance, size


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, tmp_path):
    check(Exportable(Model(**NETWORKS[name]), True), tmp_path / "model.onnx")


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators(operator, tmp_path):
    check(one_block(operator), tmp_path / "model.onnx")


def test_what_cannot_be_free_is_refused(tmp_path):
    with pytest.raises(ValueError, match="leave H and W fixed") as error:
        export(one_block("GlobalFilter"), tmp_path / "model.onnx", EXAMPLE, dynamic=True)
    assert len(str(error.value).splitlines()) == 1


def test_every_network_with_a_grid_is_here():
    convolutional = {"LCNet", "ESNet"}
    assert {case["type"] for case in NETWORKS.values()} == set(backbones.__all__) - convolutional
