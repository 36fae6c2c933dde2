"""Code blocks of README and the documentation: Python runs, and configs build. test_command_lines.py parses the commands."""

from importlib import import_module
from pathlib import Path

import pytest
import timm
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope

from helpers.networks import randomised
from helpers.pages import PAGES, ROOT, name_of, read_blocks
from mmlisa.conversion import PublishedWeights
from mmlisa.models import backbones
from mmlisa.models.attention import build_attention
from mmlisa.models.timm import NETWORKS, register_host
from mmlisa.registry import MODELS
from mmlisa.training.config import load_config

NEEDS_DATA = {"yolo_to_coco.py", "voc_to_coco.py"}  # they convert annotations that the reader has
with_blocks = pytest.mark.parametrize("page", [page for page in PAGES if read_blocks(page)], ids=name_of)


@with_blocks
def test_python_runs_and_configs_build(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {"_base_": Config.fromfile(ROOT / "configs" / "mask_rcnn_hylisanet_demo.py")}
    for block in read_blocks(page):
        if block.language != "python":
            continue
        code = compile(block.code, name_of(page), "exec")
        if block.not_run:
            continue
        if block.title is None:
            exec(code, namespace)
            for name in namespace.get("custom_imports", {}).get("imports", []):
                import_module(name)
            check_parts(namespace)
        else:
            (tmp_path / block.title).write_text(block.code)
            if "_base_ =" in block.code:
                check_config(block.title)
            elif block.title not in NEEDS_DATA:
                import_module(Path(block.title).stem)


def check_parts(namespace: dict) -> None:
    """Build the attention and the backbone that a fragment of a config defines, and compare its neck's channels."""
    with torch.device("meta"):
        if isinstance(attention := namespace.get("attention"), dict):
            build_attention(attention, 32, 2, (7, 7))
        model = namespace.get("model")
        options = model.get("backbone") if isinstance(model, dict) else namespace.get("backbone")
        if isinstance(options, dict) and options.get("type", "").removeprefix("mmlisa.") in backbones.__all__:
            built = MODELS.build({key: value for key, value in options.items() if key != "_delete_"})
            if isinstance(model, dict) and "neck" in model:
                assert list(model["neck"]["in_channels"]) == list(built.feature_channels)


def check_config(path: str) -> None:
    cfg = load_config(path)
    import_module(f"{cfg.default_scope}.models")
    MODELS.get("mmlisa.MlpClsHead")  # imports modules that create tensors, before the meta device
    with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.device("meta"):
        MODELS.build(cfg.model)


def test_a_host_of_a_user(tmp_path, monkeypatch):
    """The host of docs/add_host.md lies outside of the package: under a detector, in timm, and with published weights."""
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
