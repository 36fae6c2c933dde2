"""The host of docs/add_host.md, which lies outside of the package, under a detector, in timm, and with published weights."""

from importlib import import_module

import pytest
import timm
import torch
from mmengine.registry import DefaultScope

from helpers.networks import randomised
from helpers.pages import ROOT, read_blocks
from mmlisa.conversion import PublishedWeights
from mmlisa.models.timm import NETWORKS, register_host
from mmlisa.registry import MODELS
from mmlisa.training.config import load_config


def test_a_host_of_a_user(tmp_path, monkeypatch):
    pytest.importorskip("mmdet.models")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block in read_blocks(ROOT / "docs" / "add_host.md"):
        if block.title is not None:
            (tmp_path / block.title).write_text(block.code)
    host, image = import_module("small_pyramid").SmallPyramid, torch.randn(1, 3, 64, 96)

    with DefaultScope.overwrite_default_scope("mmdet"):
        detector = MODELS.build(load_config("small_pyramid_demo.py").model)
    assert [m.shape[2] for m in detector.extract_feat(image)] == [16, 8, 4, 2, 1]

    monkeypatch.setattr("mmlisa.models.timm.NETWORKS", {**NETWORKS})
    register_host(host)
    assert timm.create_model("small_pyramid_b0", num_classes=5)(image).shape == (1, 5)
    features = timm.create_model("small_pyramid_b0", features_only=True)
    assert features.feature_info.channels() == [m.shape[1] for m in features(image)] == [32, 64, 160, 256]

    published, backbone = randomised(timm.create_model("pvt_v2_b0")).state_dict(), host()
    torch.save(published, "pvt_v2_b0.pth")
    PublishedWeights("pvt_v2_b0.pth", min_matched=0.7)(backbone)
    state, block = backbone.state_dict(), "stages.1.blocks.0"
    assert torch.equal(state["norm2.bias"], published["stages.2.norm.bias"])
    assert torch.equal(state[f"{block}.mlp.fc2.weight"], published[f"{block}.mlp.fc2.weight"])
    joint = torch.cat([published[f"{block}.attn.{name}.weight"] for name in ("q", "kv")])
    assert torch.equal(state[f"{block}.attn.qkv.weight"], joint)
