"""PaddleDetection's PicoDet, in its naming, fills a detector of ours with no key left over on either side.

The layouts follow PaddleDetection's release 2.6 line by line; the file that names each part stands in its docstring.
"""

import os
import pickle

import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope

from helpers.networks import matched
from mmlisa.checkpoints import CheckpointError
from mmlisa.conversion import convert_published
from mmlisa.models.backbones import CastlingESNetViT, ESNet
from mmlisa.registry import MODELS


def conv(name, out, into, size, groups=1, norm="bn", conv_name="conv"):
    """A convolution and its batch norm, as Paddle names them."""
    state = {f"{name}.{conv_name}.weight": (out, into // groups, size, size)}
    return state | {f"{name}.{norm}.{kind}": (out,) for kind in ("weight", "bias", "_mean", "_variance")}


def separable(name, into, out, size, se=False):
    """ppdet/modeling/backbones/lcnet.py: DepthwiseSeparable."""
    shapes = conv(f"{name}.dw_conv", into, into, size, into) | conv(f"{name}.pw_conv", out, into, 1)
    if se:
        for layer, a, b in (("conv1", into // 4, into), ("conv2", into, into // 4)):
            shapes |= {f"{name}.se.{layer}.weight": (a, b, 1, 1), f"{name}.se.{layer}.bias": (a,)}
    return shapes


def lcnet():
    """ppdet/modeling/backbones/lcnet.py."""
    shapes = conv("backbone.conv1", 16, 3, 3)
    stages = {
        2: [(16, 32, 3)],
        3: [(32, 64, 3), (64, 64, 3)],
        4: [(64, 128, 3), (128, 128, 3)],
        5: [(128, 256, 3), *[(256, 256, 5)] * 5],
        6: [(256, 512, 5), (512, 512, 5)],
    }
    for stage, blocks in stages.items():
        for i, (into, out, size) in enumerate(blocks):
            shapes |= separable(f"backbone.blocks{stage}.{i}", into, out, size, se=stage == 6)
    return shapes


def dp(name, width):
    """ppdet/modeling/necks/csp_pan.py: DPModule."""
    shapes = {f"{name}.dwconv.weight": (width, 1, 5, 5), f"{name}.pwconv.weight": (width, width, 1, 1)}
    return shapes | {
        f"{name}.bn{i}.{kind}": (width,) for i in (1, 2) for kind in ("weight", "bias", "_mean", "_variance")
    }


def pan(kind, width=128):
    """ppdet/modeling/necks/csp_pan.py; lc_pan.py, whose fusion is by LCNet's blocks."""
    shapes, half = {}, width // 2
    for i, channels in enumerate((128, 256, 512)):
        shapes |= conv(f"neck.conv_t.convs.{i}", width, channels, 1)
    for block in (f"neck.{part}.{i}" for part in ("top_down_blocks", "bottom_up_blocks") for i in range(2)):
        if kind == "CSPPAN":
            shapes |= conv(f"{block}.main_conv", half, 2 * width, 1) | conv(f"{block}.short_conv", half, 2 * width, 1)
            shapes |= conv(f"{block}.blocks.0.conv1", half, half, 1) | dp(f"{block}.blocks.0.conv2", half)
            shapes |= conv(f"{block}.final_conv", width, width, 1)
        else:
            shapes |= separable(f"{block}.0", 2 * width, 2 * width, 5) | separable(f"{block}.1", 2 * width, width, 5)
    for name in ("downsamples.0", "downsamples.1", "first_top_conv", "second_top_conv"):
        shapes |= dp(f"neck.{name}", width)
    return shapes


def head(width=128, classes=10):
    """ppdet/modeling/heads/pico_head.py, and what gfl_head.py's GFLHead leaves in it: scales and distances."""
    shapes = {f"head.p{level}_feat.scale_reg": (1,) for level in range(3, 7)}
    shapes["head.distribution_project.project"] = (8,)
    for level in range(4):
        for i in range(4):
            shapes |= conv(f"head.conv_feat.cls_conv_dw{level}.{i}", width, width, 5, width, norm="norm")
            shapes |= conv(f"head.conv_feat.cls_conv_pw{level}.{i}", width, width, 1, norm="norm")
        shapes |= {
            f"head.head_cls{level}.weight": (classes + 32, width, 1, 1),
            f"head.head_cls{level}.bias": (classes + 32,),
        }
    return shapes


@pytest.mark.parametrize(("neck", "suffix"), [("CSPPAN", "pdparams"), ("LCPAN", "npz")])
def test_no_key_is_left_over(neck, suffix, tmp_path):
    rng = np.random.default_rng(0)
    shapes = lcnet() | pan(neck) | head()
    arrays = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    arrays["head.distribution_project.project"] = np.arange(8, dtype="f4")
    if neck == "LCPAN":  # an early release
        del arrays["head.distribution_project.project"]
    path = tmp_path / f"picodet.{suffix}"
    if suffix == "npz":
        np.savez(path, **arrays)
    else:  # as a dict of Paddle's tensors is pickled: pairs of a name and an array
        named = {name: (f"param_{i}", array) for i, (name, array) in enumerate(arrays.items())}
        path.write_bytes(pickle.dumps({**named, "StructuredToParameterName@@": {"a": "b"}}, protocol=2))
    with DefaultScope.overwrite_default_scope("mmdet"):
        detector = MODELS.build(
            dict(
                type="mmdet.SingleStageDetector",
                backbone=dict(type="mmlisa.LCNet", arch="x1.0", out_indices=(1, 2, 3)),
                neck=dict(type=f"mmlisa.{neck}", in_channels=[128, 256, 512], out_channels=128),
                bbox_head=dict(type="mmlisa.PicoHead", num_classes=10, in_channels=128, stacked_convs=4),
            )
        )
    checkpoint, report = convert_published(str(path))
    assert checkpoint["meta"]["backbone"] == dict(type="mmlisa.LCNet", arch="x1.0")
    detector.load_state_dict(checkpoint["state_dict"], strict=True)
    assert "unused" not in report
    assert torch.equal(detector.bbox_head.integral.project, torch.arange(8.0))
    # Where a shape would fit in several places, the place: blocks, levels and order of fusion.
    ours = detector.state_dict()
    pairs = {
        "backbone.blocks5.3.dw_conv.conv.weight": "backbone.stages.2.downsample.3.conv_dw.weight",
        "backbone.blocks6.1.se.conv2.bias": "backbone.stages.3.downsample.1.se.conv_expand.bias",
        "neck.conv_t.convs.1.bn._mean": "neck.transforms.1.bn.running_mean",
        "head.conv_feat.cls_conv_pw2.3.norm._variance": "bbox_head.towers.2.3.pointwise_conv.bn.running_var",
        "head.head_cls3.weight": "bbox_head.predictors.3.weight",
        "neck.second_top_conv.dwconv.weight": "neck.top.1.depthwise_conv.conv.weight",
        "neck.downsamples.1.bn2.bias": "neck.downsamples.1.pointwise_conv.bn.bias",
    }
    if neck == "CSPPAN":
        pairs |= {
            "neck.top_down_blocks.1.blocks.0.conv2.bn2.weight": "neck.top_down.1.main.2.pointwise_conv.bn.weight",
            "neck.bottom_up_blocks.0.short_conv.conv.weight": "neck.bottom_up.0.short.conv.weight",
        }
    else:
        pairs |= {
            "neck.top_down_blocks.1.0.pw_conv.bn._mean": "neck.top_down.1.0.pointwise_conv.bn.running_mean",
            "neck.bottom_up_blocks.0.1.dw_conv.conv.weight": "neck.bottom_up.0.1.depthwise_conv.conv.weight",
        }
    for theirs, name in pairs.items():
        assert np.array_equal(arrays[theirs], ours[name].numpy()), theirs


def esnet(scale=0.75, ratios=(0.875, 0.5, 0.5, 0.5, 0.625, 0.5, 0.625, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)):
    """ppdet/modeling/backbones/esnet.py, with the channel_ratio of PicoDet-S."""

    def unit(name, out, into, size, groups=1):
        return conv(name, out, into, size, groups, norm="_batch_norm", conv_name="_conv")

    def se(name, width):
        shapes = {f"{name}._se.conv1.weight": (width // 4, width, 1, 1), f"{name}._se.conv1.bias": (width // 4,)}
        return shapes | {f"{name}._se.conv2.weight": (width, width // 4, 1, 1), f"{name}._se.conv2.bias": (width,)}

    shapes, into, ratios = unit("_conv1", 24, 3, 3), 24, iter(ratios)
    for stage, (width, repeats) in enumerate(((128, 3), (256, 7), (512, 3)), start=2):
        out = int(width * scale)
        for i in range(repeats):
            name, mid = f"{stage}_{i + 1}", int(out * next(ratios) + 4) // 8 * 8
            if i == 0:
                shapes |= unit(f"{name}._conv_dw_1", into, into, 3, into)
                shapes |= unit(f"{name}._conv_linear_1", out // 2, into, 1)
                shapes |= unit(f"{name}._conv_pw_2", mid // 2, into, 1)
                shapes |= unit(f"{name}._conv_dw_2", mid // 2, mid // 2, 3, mid // 2) | se(name, mid // 2)
                shapes |= unit(f"{name}._conv_linear_2", out // 2, mid // 2, 1)
                shapes |= unit(f"{name}._conv_dw_mv1", out, out, 3, out) | unit(f"{name}._conv_pw_mv1", out, out, 1)
            else:
                shapes |= unit(f"{name}._conv_pw", mid // 2, out // 2, 1)
                shapes |= unit(f"{name}._conv_dw", mid // 2, mid // 2, 3, mid // 2) | se(name, mid)
                shapes |= unit(f"{name}._conv_linear", out // 2, mid, 1)
        into = out
    return shapes


def test_esnet_in_paddles_naming():
    state = {name: torch.randn(shape) for name, shape in esnet().items()}
    found = matched(ESNet("x0.75"), state)
    assert not found.fresh
    assert not found.dropped
    pairs = {
        "3_7._se.conv2.weight": "stages.1.downsample.6.se.conv_expand.weight",
        "2_1._se.conv1.weight": "stages.0.downsample.0.branch2.2.conv_reduce.weight",
        "4_1._conv_dw_mv1._batch_norm._mean": "stages.2.downsample.0.merge.0.1.running_mean",
        "4_2._conv_linear._conv.weight": "stages.2.downsample.1.linear.0.weight",
    }
    for theirs, ours in pairs.items():
        assert torch.equal(found.state[ours], state[theirs]), theirs
    assert 0.1 < matched(CastlingESNetViT("small"), state).share < 0.9


@pytest.mark.parametrize("other", ["head.cls_align.0.dwconv.weight", "head.conv_feat.reg_conv_dw0.0.conv.weight"])
def test_another_head_is_left_out(other):
    """PicoHeadV2 of release 2022.03, or towers for the boxes: backbone and neck are a start."""
    arrays = {name: np.zeros(shape, "f4") for name, shape in (lcnet() | pan("LCPAN") | head() | {other: (1,)}).items()}
    checkpoint, _ = convert_published(arrays)
    assert {name.split(".")[0] for name in checkpoint["state_dict"]} == {"backbone", "neck"}


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("suffix", ["pdparams", "npz"])
def test_paddles_files_run_no_code(tmp_path, suffix):
    path, content = tmp_path / f"bad.{suffix}", np.array([Malicious(tmp_path / "ran")], object)
    np.savez(path, a=content) if suffix == "npz" else path.write_bytes(pickle.dumps({"a": content[0]}))
    with pytest.raises(CheckpointError, match=r"bad\."):
        convert_published(str(path))
    assert not (tmp_path / "ran").exists()
