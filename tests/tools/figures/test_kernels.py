import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.model import ImgDataPreprocessor
from PIL import Image

from figures.kernels import (
    attention_kernel,
    attention_kernels,
    draw_features,
    draw_kernels,
    feature_norms,
    find_operators,
    network_input,
    overlay_kernel,
)
from figures.matrices import attention_matrix
from mmlisa import ops
from mmlisa.models.attention import build_attention
from mmlisa.registry import MODELS

GRID = (5, 6)


def build(**cfg):
    torch.manual_seed(0)
    return build_attention(cfg, 32, 2, GRID).double().eval()


@pytest.fixture
def x():
    return torch.randn(1, 30, 32, dtype=torch.double)


def heads(operator, x):
    return [t.unflatten(2, (2, 16)).transpose(1, 2)[0] for t in operator.qkv(x).chunk(3, dim=2)]


def test_kernel_of_softmax_is_a_row_of_its_weights(x):
    operator = build(type="SoftmaxAttention", rpe="head")
    query, key, _ = heads(operator, x)
    weights = (query @ key.transpose(1, 2) / 4 + operator.rpe(GRID)).softmax(-1)
    kernel = attention_kernel(operator, x, GRID, 13)
    torch.testing.assert_close(kernel.flatten(1), weights[:, 13])


def test_kernel_of_lisa_is_its_patterns_times_its_kernels(x):
    """sum_d s_d W^b_d at the cyclic offsets, with s_d from the definition."""
    operator = build(type="LiSA", num_patterns=3)
    query, key, _ = heads(operator, x)
    query, key = F.normalize(query, dim=2), F.normalize(key, dim=2)
    encoded = torch.einsum("hnc,cdn->hcd", key, ops.circulant(operator.kernel_a, GRID)[:, :, 13])
    pattern = torch.einsum("hc,hcd->hd", query[:, 13], encoded)
    expected = torch.einsum("hd,dj->hj", pattern, ops.circulant(operator.kernel_b, GRID)[:, 13])
    torch.testing.assert_close(attention_kernel(operator, x, GRID, 13).flatten(1), expected)


def test_prefix_tokens_are_left_out(x):
    operator = build(type="SoftmaxAttention")
    with_class = torch.cat([torch.randn(1, 1, 32, dtype=torch.double), x], dim=1)
    query, key, _ = heads(operator, with_class)
    weights = (query @ key.transpose(1, 2) / 4).softmax(-1)
    kernel = attention_kernel(operator, with_class, GRID, 13)
    torch.testing.assert_close(kernel.flatten(1), weights[:, 14, 1:])


def test_kernel_of_an_operator_without_values_is_its_receptive_field(x):
    kernel = attention_kernel(build(type="DepthwiseConv", kernel_size=3), x, GRID, 14)
    assert kernel.shape == (1, *GRID)
    assert (kernel[0, 1:4, 1:4] > 0).all()
    kernel[0, 1:4, 1:4] = 0
    assert not kernel.any()


@pytest.fixture(scope="module")
def backbone():
    narrow = dict(depths=(1, 1, 2, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    torch.manual_seed(0)
    return MODELS.build(dict(type="LiSANet", arch=dict(base="hybrid-small", **narrow), image_size=64)).eval()


def test_kernels_and_norms_of_a_backbone(backbone, tmp_path):
    assert list(find_operators(backbone)) == [f"stages.{i}.blocks.{j}.attn" for i, j in ((2, 0), (2, 1), (3, 0))]
    image, queries = torch.randn(3, 64, 96), [(0.5, 0.5), (0.0, 1.0)]
    kernels = attention_kernels(backbone, image, [0, -1], queries)
    assert {name: tuple(kernel.shape) for name, kernel in kernels.items()} == {
        "stages.2.blocks.0.attn": (2, 2, 4, 6),
        "stages.3.blocks.0.attn": (2, 3, 2, 3),
    }
    norms = feature_norms(backbone, image)
    assert {name: tuple(norm.shape) for name, norm in norms.items()} == {
        "stages.2.blocks.0": (4, 6),
        "stages.2.blocks.1": (4, 6),
        "stages.3.blocks.0": (2, 3),
    }
    with torch.no_grad():
        tokens = _output(backbone, backbone.stages[2].blocks[1], image)[0]
        torch.testing.assert_close(norms["stages.2.blocks.1"], tokens.norm(dim=1).reshape(4, 6))
    rows = [("one", kernels), ("two", kernels)]
    draw_kernels(torch.zeros(3, 64, 96), queries, rows, [0, 2], tmp_path / "new" / "kernels.png")
    draw_features(torch.zeros(3, 64, 96), [("one", norms)], tmp_path / "features.png")
    for name in ("new/kernels.png", "features.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 100


def test_overlay_of_a_kernel():
    """Red where it adds, blue where it subtracts, faint grey elsewhere, a ring around the query; smooth."""
    kernel = torch.zeros(4, 8)
    kernel[0, 1], kernel[3, 6] = 0.02, -0.01
    drawing = overlay_kernel(torch.full((3, 40, 80), 100.0), kernel, (0.5, 0.25)).astype(int)
    assert drawing.shape == (160, 320, 3)
    assert drawing[20, 60, 0] > drawing[20, 60, 2] + 60
    assert drawing[140, 260, 2] > drawing[140, 260, 0] + 40
    assert (drawing[140, 60] == 165).all()
    assert (drawing[80, 80 + 320 // 40] > 200).all(), "the ring"
    assert np.abs(np.diff(drawing[20], axis=0)).max() < 40


def _output(backbone, module, image):
    outputs = []
    hook = module.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    backbone(image[None])
    hook.remove()
    return outputs[0]


def test_every_operator_of_the_registry_has_a_kernel(x):
    x = x.float()
    names = [name for name, cls in MODELS.module_dict.items() if cls.__module__.startswith("mmlisa.models.attention")]
    assert len(names) > 10
    for name in names:
        kernel = attention_kernel(build_attention(dict(type=name), 32, 2, GRID).eval(), x, GRID, 13)
        assert kernel.shape[1:] == GRID, name
        assert kernel.isfinite().all(), name
        assert kernel.any(), name


@pytest.mark.parametrize(
    "options",
    [
        dict(mean=[1, 2, 3], std=[4, 5, 6], bgr_to_rgb=True),
        dict(mean=[1, 2, 3], std=[4, 5, 6]),  # networks that learned from Caffe's weights
    ],
    ids=["RGB", "BGR"],
)
def test_the_network_gets_what_its_preprocessor_makes_of_a_file(options):
    preprocessor, picture = ImgDataPreprocessor(**options), torch.randint(0, 256, (3, 4, 5))
    expected = preprocessor({"inputs": [picture.flip(0).byte()]})["inputs"][0]
    torch.testing.assert_close(network_input(picture.float(), preprocessor), expected)


def test_stages_behind_the_last_map_are_left_out():
    """They never run."""
    narrow = dict(depths=(1, 1, 2, 1), channels=(16, 32, 32, 48), num_heads=(1, 2, 2, 3))
    cfg = dict(type="LiSANet", arch=dict(base="hybrid-small", **narrow), image_size=64, out_indices=(0, 2))
    shorter = MODELS.build(cfg).eval()
    assert list(find_operators(shorter)) == [f"stages.2.blocks.{i}.attn" for i in (0, 1)]
    assert list(feature_norms(shorter, torch.randn(3, 64, 64))) == [f"stages.2.blocks.{i}" for i in (0, 1)]


@pytest.mark.parametrize("kind", ["RALAAttention", "MALAAttention"])
def test_the_gate_behind_an_attention_is_left_out(x, kind):
    operator = build(type=kind)
    for parameter in operator.lepe.parameters():
        torch.nn.init.zeros_(parameter)  # the convolution has other weights for each channel
    query, key, value = (t.unflatten(2, (2, 16)).transpose(1, 2) for t in operator.qkv(x).chunk(3, dim=2))
    expected = operator.attend(query, key, value, GRID)[0, :, 13]
    kernel = attention_kernel(operator, x, GRID, 13).flatten(1)
    torch.testing.assert_close((kernel[:, None] @ value[0])[:, 0], expected)
    torch.testing.assert_close(attention_matrix(operator, x, GRID)[:, 13], kernel)
