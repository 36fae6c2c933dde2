"""PaddleDetection's PicoDet, in its naming, fills a detector of ours with no key left over on either side."""

import os
import pickle

import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope

from helpers.golden_weights import shapes
from mmlisa.checkpoints import CheckpointError
from mmlisa.conversion import convert_published, match
from mmlisa.models.backbones import CastlingESNetViT, ESNet, LCNet
from mmlisa.registry import MODELS


@pytest.mark.parametrize(("neck", "suffix"), [("CSPPAN", "pdparams"), ("LCPAN", "npz")])
def test_no_key_is_left_over(neck, suffix, tmp_path):
    rng = np.random.default_rng(0)
    layout = shapes(f"paddle_picodet_{neck.lower()}")
    arrays = {name: rng.standard_normal(shape).astype("f4") for name, shape in layout.items()}
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
    assert checkpoint["meta"]["backbone"] == LCNet("x1.0").settings()
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


def test_esnet_in_paddles_naming():
    state = {name: torch.randn(shape) for name, shape in shapes("paddle_esnet").items()}
    found = match(state, ESNet("x0.75"))
    assert not found.fresh
    assert not found.unused
    pairs = {
        "3_7._se.conv2.weight": "stages.1.downsample.6.se.conv_expand.weight",
        "2_1._se.conv1.weight": "stages.0.downsample.0.branch2.2.conv_reduce.weight",
        "4_1._conv_dw_mv1._batch_norm._mean": "stages.2.downsample.0.merge.0.1.running_mean",
        "4_2._conv_linear._conv.weight": "stages.2.downsample.1.linear.0.weight",
    }
    for theirs, ours in pairs.items():
        assert torch.equal(found.state[ours], state[theirs]), theirs
    assert 0.1 < match(state, CastlingESNetViT("small")).share < 0.9


@pytest.mark.parametrize("other", ["head.cls_align.0.dwconv.weight", "head.conv_feat.reg_conv_dw0.0.conv.weight"])
def test_another_head_is_left_out(other):
    """PicoHeadV2 of release 2022.03, or towers for the boxes: backbone and neck are a start."""
    layout = shapes("paddle_picodet_lcpan") | {other: [1]}
    arrays = {name: np.zeros(shape, "f4") for name, shape in layout.items()}
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
