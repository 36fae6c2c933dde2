"""Networks of timm under OpenMMLab's heads."""

import pytest
import timm
import torch

import mmlisa
from mmlisa.errors import UserError
from mmlisa.registry import MODELS


@pytest.mark.parametrize(
    "name", ["convnext_tiny.dinov3_lvd1689m", "efficientvit_b2", "cpubone_b2_bfrobust", "resnet50", "swin_s3_tiny_224"]
)
def test_frozen_stages(name):
    if not timm.is_model(name.split(".")[0]):
        pytest.skip("not in this timm")
    options = dict(strict_img_size=False) if name.startswith("swin") else {}
    with torch.device("meta"):
        backbone = MODELS.build(dict(type="mmlisa.TimmBackbone", model_name=name, frozen_stages=2, **options)).train()
    maps = backbone(torch.empty(2, 3, 352, 480, device="meta"))
    assert [x.shape[1] for x in maps] == mmlisa.channels("TimmBackbone", model_name=name)
    layers = dict(backbone.network.named_children())
    stage = {"resnet50": "layer", "swin_s3_tiny_224": "layers_"}.get(name, "stages_")
    frozen, trained = f"{stage}1", f"{stage}2"
    assert not any(p.requires_grad for p in layers[frozen].parameters())
    assert all(p.requires_grad for p in layers[trained].parameters())
    assert not any(m.training for m in layers[frozen].modules())
    assert all(m.training for m in layers[trained].modules())
    assert not next(backbone.parameters()).requires_grad  # the stem


def test_tokens_and_positions_of_a_vit_are_frozen():
    options = dict(type="mmlisa.TimmBackbone", model_name="vit_tiny_patch16_224")
    for stages in (-1, 0, 3, 12):
        with torch.device("meta"):
            network = MODELS.build(dict(**options, frozen_stages=stages)).train().network.model
        for parameter in (network.cls_token, network.pos_embed, network.patch_embed.proj.weight):
            assert parameter.requires_grad == (stages < 0)
        trained = [any(p.requires_grad for p in block.parameters()) for block in network.blocks]
        assert trained == [False] * max(stages, 0) + [True] * (12 - max(stages, 0))


@pytest.mark.parametrize(("stages", "most"), [(9, 5), (-2, 5), (3, 2)])
def test_frozen_stages_out_of_range_are_refused(stages, most):
    options = dict(out_indices=(0, 1)) if most == 2 else {}
    with torch.device("meta"), pytest.raises(ValueError, match=rf"frozen_stages={stages}; .* {most} \(all\)"):
        MODELS.build(dict(type="mmlisa.TimmBackbone", model_name="resnet18", frozen_stages=stages, **options))


def build(name, **options):
    return MODELS.build(dict(type="mmlisa.TimmBackbone", model_name=name, **options)).eval()


def test_norm_and_padding_of_a_vit():
    """Equal to timm's normed features of the image padded to whole patches."""
    torch.manual_seed(0)
    backbone = build("vit_small_patch14_dinov2", norm=True, dynamic_img_size=True, out_indices=(5, 11))
    image = torch.randn(1, 3, 65, 97)
    padded = torch.nn.functional.pad(image, (0, 1, 0, 5))
    with torch.no_grad():
        found = backbone(image)
        expected = backbone.network.model.forward_intermediates(padded, (5, 11), norm=True, intermediates_only=True)
    assert [x.shape for x in found] == [(1, 384, 5, 7)] * 2
    torch.testing.assert_close(found, tuple(expected))


def test_a_size_that_timm_refuses_has_a_remedy():
    with pytest.raises(UserError, match=r"beit_base_patch16_224.*64x96.*dynamic_img_size"):
        build("beit_base_patch16_224")(torch.zeros(1, 3, 64, 96))


@pytest.mark.parametrize(
    ("name", "last"), [("vit_tiny_patch16_224", "blocks.11"), ("convnext_atto", "stages_3.blocks.1")]
)
def test_layer_depths_are_timms(name, last):
    backbone = build(name)
    names = [f"backbone.{name}" for name, _ in backbone.named_parameters()]
    depths = {name: backbone.get_layer_depth(name, "backbone.") for name in names}
    count = backbone.get_layer_depth("decode_head.conv.weight", "backbone.")[1]
    assert {number for _, number in depths.values()} == {count}
    assert backbone.get_layer_depth("decode_head.conv.weight", "backbone.") == (count - 1, count)
    assert depths[names[0]][0] == 0
    (deepest,) = {depth for name, (depth, _) in depths.items() if f".{last}." in name}
    assert deepest == count - 2 == max(depth for name, (depth, _) in depths.items() if "norm." not in name)


def test_a_network_without_numbered_layers_has_no_layer_decay():
    with torch.device("meta"), pytest.raises(UserError, match=r"caformer_s18.*layer_decay"):
        build("caformer_s18").get_layer_depth("backbone.network.stem.conv.weight", "backbone.")


@pytest.mark.parametrize("name", ["pvt_v2_b0", "xcit_nano_12_p16_224"])
def test_patches_that_overlap_are_not_padded(name):
    image = torch.randn(1, 3, 65, 97)
    backbone = build(name)
    with torch.no_grad():
        torch.testing.assert_close(backbone(image), tuple(backbone.network(image)))


def save(path, **changes):
    torch.manual_seed(0)
    whole = timm.create_model("convnext_atto")
    state = {name: tensor for name, tensor in whole.state_dict().items() if name not in changes}
    torch.save({"state_dict": state | {name: tensor for name, tensor in changes.items() if tensor is not None}}, path)
    return whole.eval()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head.fc.weight": torch.zeros(7, 320), "head.fc.bias": torch.zeros(7)},
        {"head.fc.weight": None, "head.fc.bias": None},
    ],
    ids=["whole", "other classes", "no classifier"],
)
def test_weights_of_a_file(tmp_path, changes):
    whole, image = save(tmp_path / "a.pth", **changes), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        found = build("convnext_atto", pretrained=str(tmp_path / "a.pth"))(image)[-1]
        expected = whole.forward_intermediates(image, intermediates_only=True)[-1]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "changes",
    [
        {"stages.3.blocks.1.mlp.fc1.weight": None},
        {"stages.3.blocks.1.norm.bias": None},
        {"stages.2.blocks.6.norm.bias": torch.zeros(160)},
        {"stages.3.blocks.1.norm.bias": torch.zeros(160)},
    ],
    ids=["matrix is missing", "bias is missing", "deeper", "wider"],
)
def test_a_file_of_another_network_is_refused(tmp_path, changes):
    save(tmp_path / "a.pth", **changes)
    with pytest.raises(UserError, match=rf"pretrained=.*a\.pth.*convnext_atto: .*{next(iter(changes))}"):
        build("convnext_atto", pretrained=str(tmp_path / "a.pth"))
