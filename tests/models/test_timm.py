"""The networks from outside: timm's interface on one network per kind, and the decoders of segmentation_models_pytorch."""

from math import ceil
from pathlib import Path

import pytest
import timm
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, resolve_model_data_config
from timm.models import group_parameters
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from torch import nn

import mmlisa
from helpers.recipes import kinds, stated
from mmlisa.models import backbones
from mmlisa.models.timm import NETWORKS
from research.paper_tables import build_on_meta

RECIPES = stated()
CONFIGS = Path(__file__).parents[2] / "configs" / "imagenet"
KINDS = (
    "lisanet_s",
    "hylisanet_s",
    "flatten_swin_t",
    "flatten_pvt_t",
    "flatten_deit_t",
    "lcnet_x0_25",
    "castling_mvitv2_t",
    "h_vit3_t",
)
# Other heads and recipes.
MORE = ("lisanet_i", "flatten_swin_b_384", "flatten_cswin_b_384", "ivit_t", "vit_t16_interactive", "castling_levit_128")


def create(name: str, **options) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name, **options).eval()


def on_meta(name: str, **options) -> nn.Module:
    with torch.device("meta"):
        return create(name, **options)


def blank(*size: int) -> torch.Tensor:
    return torch.empty(1, 3, *size, device="meta")


# One of every host, with and without a hidden layer in the classifier.
HEADS = {(network.host, network.settings.hidden is None): name for name, network in NETWORKS.items()}


def test_names():
    assert timm.list_models("hylisanet*") == ["hylisanet_b", "hylisanet_s"]
    assert mmlisa.list_models("flatten_swin_?") == ["flatten_swin_b", "flatten_swin_s", "flatten_swin_t"]
    named = {(network.host.__name__, network.arch) for network in NETWORKS.values()}
    assert named == {(name, arch) for name in backbones.__all__ for arch in getattr(backbones, name).arch_settings}


@pytest.mark.parametrize("name", HEADS.values())
def test_classifier(name):
    model, network = on_meta(name), NETWORKS[name]
    cfg = model.default_cfg
    size = network.host.arch_settings[network.arch].get("image_size", 224)
    assert cfg["input_size"] == (3, size, size)
    assert f"{cfg['classifier']}.weight" in model.state_dict()
    assert isinstance(model.get_submodule(cfg["first_conv"]), nn.Conv2d)
    assert model.get_submodule(cfg["first_conv"]).in_channels == 3
    image = blank(size, size)
    features = model.forward_features(image)
    if model.backbone.num_extra_tokens:
        assert features.shape[2] == model.num_features
    else:
        assert features.shape[1:] == (model.num_features, *model.default_cfg["pool_size"])
    assert model.forward_head(features).shape == model(image).shape == (1, model.num_classes) == (1, 1000)
    assert model.forward_head(features, pre_logits=True).shape == (1, model.head_hidden_size)
    model.reset_classifier(0)
    assert isinstance(model.get_classifier(), nn.Identity)
    assert model.num_classes == 0
    assert model(image).shape == (1, model.head_hidden_size)
    model.reset_classifier(0, "")
    assert model(image).shape == features.shape
    model.reset_classifier(5, "avg")
    assert model(image).shape == (1, 5)
    assert model.get_classifier().weight.is_meta


def test_pooling_and_dropout():
    model, image = create("flatten_deit_t", num_classes=0), torch.rand(1, 3, 64, 72)
    with torch.no_grad():
        tokens = model.forward_features(image)
        assert torch.equal(model(image), tokens[:, 0])
        for pool, expected in (("avg", tokens[:, 1:].mean(1)), ("max", tokens[:, 1:].amax(1))):
            model.reset_classifier(0, pool)
            assert torch.equal(model(image), expected)
    head = on_meta("hylisanet_s", drop_rate=0.3).head
    assert [part.p for part in head.modules() if isinstance(part, nn.Dropout)] == [0.3]
    with pytest.raises(ValueError, match="global_pool"):
        create("lcnet_x0_25", global_pool="token")


@pytest.mark.parametrize("name", KINDS)
def test_features(name):
    """Maps of the channels and strides of ``feature_info``, 4 of a pyramid and 3 of a plain network."""
    model = on_meta(name, features_only=True, in_chans=4)
    maps = model(torch.empty(1, 4, 96, 64, device="meta"))
    info = model.feature_info
    assert [tuple(m.shape[1:]) for m in maps] == [
        (c, ceil(96 / r), ceil(64 / r)) for c, r in zip(info.channels(), info.reduction(), strict=True)
    ]
    assert info.reduction() == ([16] * 3 if name == "flatten_deit_t" else [4, 8, 16, 32])
    modules = dict(model.model.named_modules())
    assert all(module in modules for module in info.module_name())
    last = on_meta(name, features_only=True, out_indices=1)
    assert [m.shape[1] for m in last(blank(64, 64))] == last.feature_info.channels() == info.channels()[-1:]


@torch.no_grad()
@pytest.mark.parametrize("name", ["hylisanet_s", "flatten_deit_t", "lcnet_x0_25"])
def test_forward_intermediates(name):
    model, image = create(name), torch.randn(2, 3, 64, 96)
    outputs = model.forward_intermediates(image, output_dict=True)
    final, maps = outputs["image_features"], outputs["image_intermediates"]
    assert torch.equal(final, model.forward_features(image))
    assert len(maps) == len(model.feature_info)
    tokens = model.forward_intermediates(image, [0, -1], output_fmt="NLC", intermediates_only=True)
    assert all(torch.equal(one, other.flatten(2).mT) for one, other in zip(tokens, (maps[0], maps[-1]), strict=True))
    (normed,) = model.forward_intermediates(image, 1, norm=True, intermediates_only=True)
    torch.testing.assert_close(normed, model.backbone(image)[-1])
    if model.backbone.num_extra_tokens:
        options = dict(norm=True, return_prefix_tokens=True, intermediates_only=True)
        ((one, prefix),) = model.forward_intermediates(image, 1, **options)
        assert torch.equal(one, normed)
        assert torch.equal(prefix, final[:, :1])
    model.backbone.stages[-1].forward = None  # fails if it is called
    early, maps = model.forward_intermediates(image, [0, 1], stop_early=True)
    assert early.shape == maps[1].shape or model.backbone.num_extra_tokens
    with pytest.raises(ValueError, match="output_fmt='NHWC'"):
        model.forward_intermediates(image, output_fmt="NHWC")


@pytest.mark.parametrize("name", KINDS)
def test_groups_of_parameters(name):
    """timm's groups are those of ``get_layer_depth``, whose rates the recipes have."""
    model = on_meta(name)
    depths = {key: model.backbone.get_layer_depth(key, "backbone.") for key, _ in model.named_parameters()}
    assert group_parameters(model, model.group_matcher(), reverse=True) == {key: d for key, (d, _) in depths.items()}
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    for group in param_groups_layer_decay(model, layer_decay=0.5, no_weight_decay_list=model.no_weight_decay()):
        for parameter in group["params"]:
            depth, count = depths[names[id(parameter)]]
            assert group["lr_scale"] == 0.5 ** (count - 1 - depth)
    coarse = group_parameters(model, model.group_matcher(coarse=True), reverse=True)
    assert coarse[model.default_cfg["first_conv"] + ".weight"] == 0
    assert set(coarse.values()) == set(range(len(model.backbone.stages) + 2))


@pytest.mark.parametrize("name", [*MORE, "mila_t", *(name for name in KINDS if name != "lcnet_x0_25")])
def test_networks_are_those_of_the_imagenet_recipes(name):
    """One network per kind of head and recipe: parameters, their weight decay, and the preprocessing of images."""
    stem, side = (name.removesuffix("_384"), "384") if name.endswith("_384") else (name, "")
    (file,) = CONFIGS.glob(f"classifier_{stem}_[0-9]*e_imagenet{side}.py")
    recipe, model = RECIPES[file.stem], on_meta(name)
    theirs = build_on_meta(file.stem).state_dict()
    shapes = {key: t.shape for key, t in theirs.items() if not key.startswith("data_preprocessor.")}
    assert {key: t.shape for key, t in model.state_dict().items()} == shapes

    is_flat = bool(recipe["undecayed"])
    options = dict(weight_decay_exclude_1d=is_flat, no_weight_decay_list=model.no_weight_decay())
    decays = {id(p): g["weight_decay"] for g in param_groups_weight_decay(model, 0.05, **options) for p in g["params"]}
    for key, kind, parameter in kinds(model):
        # timm excludes every parameter that is called bias, LiSA's matrix B too.
        expected = kind in recipe["undecayed"] or (key.endswith(".attn.bias") and parameter.ndim == 2)
        assert (decays[id(parameter)] == 0) == expected, key

    way, size, interpolation = recipe["evaluation"][0].split()
    data = resolve_model_data_config(model)
    assert data["crop_mode"] == ("squash" if way == "squash" else "center")
    assert data["interpolation"] == interpolation
    assert round(data["input_size"][1] / data["crop_pct"]) == int(size.split("x")[0])
    assert data["mean"] == IMAGENET_DEFAULT_MEAN


def test_gradient_checkpointing_runs_the_blocks_twice():
    model, calls = create("flatten_deit_t").train(), []
    model.backbone.stages[-1].blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    for enable, expected in ((True, 2), (False, 1)):
        model.set_grad_checkpointing(enable)
        calls.clear()
        model(torch.rand(1, 3, 64, 64)).sum().backward()
        assert len(calls) == expected


def test_a_checkpoint_goes_from_classifier_to_features_and_other_classes(tmp_path):
    classifier, image = create("lcnet_x0_25"), torch.rand(1, 3, 64, 64)
    file = tmp_path / "lcnet.pth"
    torch.save(dict(state_dict=classifier.state_dict(), meta={}), file)
    features = mmlisa.create_model("lcnet_x0_25", pretrained=file, features_only=True).eval()
    torch.testing.assert_close(features(image)[-1], classifier.forward_features(image))
    tuned = mmlisa.create_model("lcnet_x0_25", pretrained=file, num_classes=3).eval()
    torch.testing.assert_close(tuned.forward_features(image), classifier.forward_features(image))
    with pytest.raises(ValueError, match="of another model"):
        mmlisa.create_model("esnet_x0_75", pretrained=file)


SOFTMAX = dict(type="InteractiveAttention", landmarks=None, mix_before=False, mix_after=False)


@pytest.mark.parametrize(
    ("name", "host", "options", "side"),
    [
        ("flatten_swin_t", "swin_tiny_patch4_window7_224", dict(attn_type="SSSS"), 224),
        ("ivit_t", "caformer_s18", dict(attention=SOFTMAX), 64),
    ],
)
def test_weights_of_the_host_with_its_classifier(name, host, options, side, tmp_path):
    """With the host's own attention the logits are the host's."""
    theirs = create(host, num_classes=5)
    for p in theirs.parameters():
        nn.init.normal_(p, mean=float(p.ndim == 1), std=0.2 if p.ndim == 1 else p[0].numel() ** -0.5)
    torch.save(theirs.state_dict(), tmp_path / "host.pth")
    ours = mmlisa.create_model(name, num_classes=5, pretrained=tmp_path / "host.pth", **options).eval()
    image = torch.rand(1, 3, side, side)
    with torch.no_grad():
        expected = theirs(image)
        torch.testing.assert_close(ours(image), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_segmentation_models_pytorch():
    smp = pytest.importorskip("segmentation_models_pytorch")
    model = smp.Unet("tu-lcnet_x0_25", encoder_weights=None, classes=5, decoder_channels=(16, 16, 8, 8, 8))
    scores = model(torch.rand(2, 3, 64, 96))
    assert scores.shape == (2, 5, 64, 96)
    scores.mean().backward()
    assert all(p.grad is not None for p in model.encoder.parameters() if p.requires_grad)
