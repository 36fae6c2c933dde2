"""timm's own tests of its models, ``tests/test_models.py`` of timm 1.0, on every registered name.

Tests are named after timm's. The configs and groups of all names are checked on the meta device. The smallest network of each
family also runs, and ``slow`` adds all others.
"""

from copy import deepcopy
from functools import cache, lru_cache
from math import ceil, prod
from pathlib import Path

import pytest
import timm
import torch
from timm.data import resolve_model_data_config
from timm.models import (
    FeatureInfo,
    get_notrace_functions,
    get_notrace_modules,
    group_parameters,
    save_for_hf,
)
from timm.optim import param_groups_layer_decay, param_groups_weight_decay
from torch import nn

import mmlisa
from mmlisa.models.timm_models import HOSTS, NETWORKS

CONFIGS = Path(__file__).parents[2] / "configs"
SMALLEST = {}
for _name, _network in NETWORKS.items():
    SMALLEST.setdefault((_network.backbone, _network.arch.split("-")[0] in ("pola", "v1", "isotropic")), _name)
SMALLEST = [name for name in SMALLEST.values() if name != "castling_vit_b"]
NAMES = [pytest.param(name, marks=[] if name in SMALLEST else pytest.mark.slow) for name in NETWORKS]
CLASS_TOKEN = [name for name, network in NETWORKS.items() if network.pool == "token"]  # timm's "non_std"
PLAIN = [name for name, network in NETWORKS.items() if network.stride < 32]


@cache
def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(name).eval()


# pytest runs the tests of one name after each other where ``scope="module"``; all networks together would take 12 GB.
@lru_cache(maxsize=2)
def on_cpu(name: str) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model(name).eval()


def blank(*size: int) -> torch.Tensor:
    return torch.empty(1, 3, *size, device="meta")


def size_of(name: str, target: int) -> tuple[int, int]:
    return (min(NETWORKS[name].size, target),) * 2


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", NETWORKS)
def test_model_default_cfgs(name):
    with torch.device("meta"):
        model = timm.create_model(name).eval()
    cfg, state = model.default_cfg, model.state_dict()
    image = blank(*cfg["input_size"][1:])
    features = model.forward_features(image)
    is_map = name not in CLASS_TOKEN
    if is_map:
        assert tuple(features.shape[2:]) == cfg["pool_size"]
    assert features.shape[1 if is_map else 2] == model.num_features
    assert model.forward_head(features).shape == (1, model.num_classes) == (1, 1000)
    model.reset_classifier(0)
    assert model.num_classes == 0
    assert model.forward_head(features).shape == (1, model.head_hidden_size)
    assert model.forward_head(features, pre_logits=True).shape == (1, model.head_hidden_size)
    model.reset_classifier(0, "")
    assert model.forward_head(features).shape == features.shape
    for layer in (cfg["classifier"], cfg["first_conv"]):
        assert f"{layer}.weight" in state
    assert isinstance(model.get_submodule(cfg["first_conv"]), nn.Conv2d)
    assert model.get_submodule(cfg["first_conv"]).in_channels == 3
    assert {"interpolation", "mean", "std", "crop_pct", "license"} <= set(cfg)


@pytest.mark.parametrize("options", [{}, dict(feature_cls="getter")], ids=["own", "getter"])
@pytest.mark.parametrize("name", NAMES)
def test_model_forward_features(name, options):
    with torch.device("meta"):
        model = timm.create_model(name, features_only=True, **options).eval()
    channels, reductions = model.feature_info.channels(), model.feature_info.reduction()
    assert len(channels) >= 3
    check_maps(model(blank(96, 96)), channels, reductions)
    assert len(set(reductions)) == (1 if name in PLAIN else len(reductions))


def check_maps(maps, channels, reductions):
    assert len(maps) == len(channels)
    for one, width, reduction in zip(maps, channels, reductions, strict=True):
        assert one.shape[:2] == (1, width)
        assert all(side <= ceil(96 / reduction) + 1 for side in one.shape[2:])


@pytest.mark.parametrize("name", NAMES)
def test_model_forward_intermediates(name):
    model = on_meta(name)
    info = FeatureInfo(deepcopy(model.feature_info), len(model.feature_info))
    assert len(info.channels()) >= 3
    output, maps = model.forward_intermediates(blank(96, 96), output_fmt="NCHW")
    check_maps(maps, info.channels(), info.reduction())
    assert output.shape == model.forward_features(blank(96, 96)).shape


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_model_forward(name):
    """At 128 pixels; timm's test runs the size of the config."""
    model, image = on_cpu(name), torch.randn(1, 3, *size_of(name, 128))
    with torch.no_grad():
        output, maps = model.forward_intermediates(image)
        torch.testing.assert_close(output, model.forward_features(image))
        logits = model(image)
        assert logits.isfinite().all()
        assert all(one.isfinite().all() for one in maps)
        model.set_grad_checkpointing()
        torch.testing.assert_close(model(image), logits, rtol=1e-4, atol=1e-5)
        model.set_grad_checkpointing(False)


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_model_backward(name):
    model = deepcopy(on_cpu(name)).train()
    model.reset_classifier(42)
    output = model(torch.randn(2, 3, *size_of(name, 128)))
    assert output.shape == (2, 42)
    assert output.isfinite().all()
    output.mean().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("name", NAMES, scope="module")
def test_model_forward_fx(name):
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    model, image = on_cpu(name), torch.randn(1, 3, *size_of(name, 64))  # building it registers its modules with timm
    kwargs = dict(
        leaf_modules=get_notrace_modules(), autowrap_functions=get_notrace_functions(), param_shapes_constant=True
    )
    _, nodes = get_graph_node_names(model, tracer_kwargs=kwargs)
    names = [info["module"] for info in model.feature_info]
    assert set(names) <= set(nodes)
    traced = create_feature_extractor(model, return_nodes=[names[0], nodes[-1]], tracer_kwargs=kwargs).eval()
    with torch.no_grad():
        outputs = traced(image)
        torch.testing.assert_close(outputs[nodes[-1]], model(image))
    assert isinstance(outputs[names[0]], torch.Tensor)


@pytest.mark.parametrize("name", ["lcnet_x0_25", "flatten_deit_t", "hylisanet_s"])
def test_fx_features_torchscript_and_their_limits(name):
    """What docs/anywhere.md says: traces work, scripts do not."""
    model, image = on_cpu(name), torch.randn(1, 3, 64, 64)
    options = dict(features_only=True, out_indices=(1, 2), feature_cfg=dict(feature_cls="fx"))
    with torch.no_grad():
        nodes = timm.create_model(name, **options).eval()(image)
        assert [one.shape[0] for one in nodes] == [1, 1]
        torch.testing.assert_close(torch.jit.trace(model, image)(image), model(image))
    with pytest.raises(Exception, match=r"\S"):
        torch.jit.script(model)


@pytest.mark.parametrize("name", NETWORKS)
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
    assert coarse["backbone." + NETWORKS[name].first_conv + ".weight"] == 0
    assert set(coarse.values()) == set(range(len(model.backbone.stages) + 2))


# One network per recipe.
RECIPES = [
    "lisanet_s",
    "lisanet_i",
    "flatten_swin_t",
    "flatten_swin_b_384",
    "flatten_pvt_t",
    "flatten_pvtv2_b0",
    "flatten_cswin_t",
    "flatten_deit_t",
    "ivit_t",
    "vit_t16_interactive",
    "castling_levit_128",
    "castling_deit_t",
    "mila_t",
    "h_vit3_t",
    "vit3_t",
    "pola_swin_t",
    "pola_pvt_t",
]


@pytest.mark.parametrize("name", RECIPES)
def test_weight_decay_and_preprocessing_are_the_recipes(name):
    paper_tables = pytest.importorskip("research.paper_tables")
    from mmengine.config import Config
    from mmengine.optim import build_optim_wrapper

    stem, side = (name.removesuffix("_384"), "384") if name.endswith("_384") else (name, "")
    (file,) = CONFIGS.glob(f"imagenet/classifier_{stem}_[0-9]*e_imagenet{side}.py")
    config = Config.fromfile(file)
    theirs = paper_tables.build_on_meta(file.name)
    groups = build_optim_wrapper(theirs, config.optim_wrapper).param_groups
    names = {id(parameter): key for key, parameter in theirs.named_parameters() if parameter.requires_grad}
    expected = {names[id(p)] for g in groups for p in g["params"] if g["weight_decay"] == 0 and id(p) in names}

    model = on_meta(name)
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    groups = param_groups_weight_decay(
        model, 0.05, weight_decay_exclude_1d=bool(expected), no_weight_decay_list=model.no_weight_decay()
    )
    assert {names[id(p)] for g in groups for p in g["params"] if g["weight_decay"] == 0} == expected

    resize = next(step for step in config.test_dataloader.dataset.pipeline if step.type in ("Resize", "ResizeEdge"))
    data = resolve_model_data_config(model)
    assert data["crop_mode"] == ("squash" if resize.type == "Resize" else "center")
    assert data["interpolation"] == resize.interpolation
    edge = resize.scale if resize.type == "ResizeEdge" else resize.scale[0]
    assert round(data["input_size"][1] / data["crop_pct"]) == edge
    mean = [value / 255 for value in config.model.data_preprocessor.mean]
    assert data["mean"] == pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize("name", ["hylisanet_s", "castling_levit_128", "lcnet_x0_25", "flatten_deit_t", "lisanet_i"])
class TestIntermediates:
    """Against the backbone's own maps, and against each other."""

    @torch.no_grad()
    def test_options(self, name):
        model, image = on_cpu(name), torch.randn(2, 3, 64, 96)
        final, maps = model.forward_intermediates(image)
        last_two = model.forward_intermediates(image, 2, intermediates_only=True)
        assert all(map(torch.equal, last_two, maps[-2:]))
        chosen = model.forward_intermediates(image, [0, -1], intermediates_only=True)
        assert all(map(torch.equal, chosen, (maps[0], maps[-1])))
        tokens = model.forward_intermediates(image, output_fmt="NLC", intermediates_only=True)
        for one, other in zip(tokens, maps, strict=True):
            assert torch.equal(one, other.flatten(2).mT)
        outputs = model.forward_intermediates(image, output_dict=True)
        assert torch.equal(outputs["image_features"], final)
        assert all(map(torch.equal, outputs["image_intermediates"], maps))
        normed = model.forward_intermediates(image, 1, norm=True, intermediates_only=True)
        torch.testing.assert_close(normed[0], model.backbone(image)[-1])
        if model.backbone.num_extra_tokens:
            (pair,) = model.forward_intermediates(
                image, 1, norm=True, return_prefix_tokens=True, intermediates_only=True
            )
            assert torch.equal(pair[0], normed[0])
            assert torch.equal(pair[1], final[:, :1])
            assert "image_intermediates_prefix" in model.forward_intermediates(
                image, output_dict=True, return_prefix_tokens=True
            )

    @torch.no_grad()
    def test_stop_early(self, name):
        model, calls = on_cpu(name), []
        hooks = [
            model.get_submodule(info["module"]).register_forward_hook(lambda *_: calls.append(1))
            for info in model.feature_info
        ]
        model.forward_intermediates(torch.randn(1, 3, 64, 64), [0, 1], stop_early=True)
        for hook in hooks:
            hook.remove()
        assert len(calls) == 2

    @torch.no_grad()
    def test_modules_of_feature_info_return_the_level(self, name):
        """What Grad-CAM and feature extractors read."""
        model, image, seen = on_cpu(name), torch.randn(1, 3, 64, 64), {}
        hooks = [
            model.get_submodule(info["module"]).register_forward_hook(
                lambda _module, _args, output, index=info["index"]: seen.update({index: output})
            )
            for info in model.feature_info
        ]
        maps = model.forward_intermediates(image, intermediates_only=True)
        for hook in hooks:
            hook.remove()
        for index, one in enumerate(maps):
            got = seen[index]
            if got.ndim == 3:
                got = got[:, model.backbone.num_extra_tokens :].mT.unflatten(2, one.shape[2:])
            torch.testing.assert_close(got, one)

    @torch.no_grad()
    def test_prune_intermediate_layers(self, name):
        whole, image = on_cpu(name), torch.randn(1, 3, 64, 64)
        pruned = deepcopy(whole)
        assert pruned.prune_intermediate_layers([0, 1], prune_norm=True) == [0, 1]
        expected = whole.forward_intermediates(image, [0, 1], intermediates_only=True)
        assert all(map(torch.equal, pruned.forward_intermediates(image, [0, 1], intermediates_only=True), expected))
        assert prod(pruned(image).shape) == prod(pruned.forward_features(image).shape)
        assert pruned.num_features == whole.feature_info[1]["num_chs"]
        count = len(whole.feature_info)
        left = [key for key in pruned.state_dict() if whole.backbone.get_layer_depth(key, "backbone.")[0] > 0]
        assert not any(key.startswith(("head.", "backbone.norm")) for key in left)
        assert len(pruned.state_dict()) < len(whole.state_dict()) * (1 if count == 3 else 0.6)
        pruned.train().train(False)
        pruned.reset_classifier(3, "avg")
        assert pruned(image).shape == (1, 3)
        kept = deepcopy(whole)
        assert kept.prune_intermediate_layers(1, prune_head=False) == [count - 1]
        torch.testing.assert_close(kept(image), whole(image))


def test_normed_maps_are_the_backbones():
    features = mmlisa.create_model("hylisanet_s", features_only=True, out_indices=(1, 3)).eval()
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert all(map(torch.equal, features(image), features.backbone(image)))
        blocks = mmlisa.create_model("lisanet_i", features_only=True, out_indices=(5, -1)).eval()
        torch.testing.assert_close(blocks(image)[-1], blocks.backbone(image)[0])
    assert blocks.out_indices == (5, 11)


def test_a_number_of_levels_means_the_last_ones():
    """As timm reads it."""
    for options in (dict(out_indices=2), dict(feature_cfg=dict(out_indices=(2, 3)))):
        features = mmlisa.create_model("lcnet_x0_25", features_only=True, **options)
        assert features.out_indices == (2, 3)
    theirs, whole = (timm.create_model("resnet10t", features_only=True, **each) for each in (dict(out_indices=2), {}))
    assert theirs.feature_info.channels() == whole.feature_info.channels()[-2:]


def test_what_no_level_needs_is_left_out():
    features = mmlisa.create_model("hylisanet_s", features_only=True, out_indices=(0, 2), frozen_stages=-1)
    sum(level.square().mean() for level in features(torch.randn(1, 3, 64, 64))).backward()
    assert not [name for name, parameter in features.named_parameters() if parameter.grad is None]
    features.set_input_size((96, 64))
    assert [level.shape[2:] for level in features(torch.randn(1, 3, 96, 64))] == [(24, 16), (6, 4)]


def test_what_no_level_of_one_stage_needs_is_left_out():
    features = mmlisa.create_model("lisanet_i", features_only=True, out_indices=(1, 3), img_size=64)
    sum((level * torch.randn_like(level)).sum() for level in features(torch.randn(1, 3, 64, 64))).backward()
    unused = {name for name, parameter in features.named_parameters() if parameter.grad is None}
    assert not [name for name in unused if ".blocks." in name]
    assert len(features.backbone.stages[0].blocks) == 4


def test_a_classifier_has_no_out_indices():
    with pytest.raises(TypeError, match=r"out_indices=\(0, 1\): a classifier has none; add features_only=True"):
        timm.create_model("hylisanet_s", out_indices=(0, 1))


@pytest.mark.parametrize("name", [*SMALLEST, "flatten_swin_b_384"])
def test_set_input_size_gives_the_shapes_of_the_new_size(name):
    model = deepcopy(on_meta(name))
    shapes, size = {key: t.shape for key, t in model.state_dict().items()}, model.backbone.image_size
    model.set_input_size((160, 256))
    with torch.device("meta"):
        expected = timm.create_model(name, img_size=(160, 256)).state_dict()
    assert {key: t.shape for key, t in model.state_dict().items()} == {key: t.shape for key, t in expected.items()}
    assert model.backbone.image_size == (160, 256)
    model.set_input_size(size)
    assert {key: t.shape for key, t in model.state_dict().items()} == shapes


@pytest.mark.parametrize(
    "name", ["lisanet_i", "flatten_swin_t", "flatten_pvt_t", "flatten_deit_t", "pola_pvt_t", "castling_mvitv2_t"]
)
def test_set_input_size_loads_the_weights_into_the_new_size(name, tmp_path):
    model = deepcopy(on_cpu(name))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    expected = timm.create_model(name, img_size=128).eval()
    expected.load_state_dict(model.state_dict())
    before = dict(model.named_parameters())
    model.backbone.stem.requires_grad_(False)
    model.set_input_size(128)
    state = model.state_dict()
    assert all(torch.equal(state[key], tensor) for key, tensor in expected.state_dict().items())
    assert not any(p.requires_grad for p in model.backbone.stem.parameters())
    same = [key for key, parameter in model.named_parameters() if parameter is before[key]]
    assert 0 < len(same) < len(before)
    image = torch.randn(1, 3, 128, 128)
    with torch.no_grad():
        torch.testing.assert_close(model(image), expected(image))
    save_for_hf(model, tmp_path, model_args=dict(img_size=(128, 128)))
    again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    assert all(torch.equal(state[key], tensor) for key, tensor in again.state_dict().items())


def test_set_input_size_keeps_what_a_size_does_not_decide():
    model = mmlisa.create_model("flatten_deit_t", drop_path_rate=0.1)
    model.set_grad_checkpointing()
    model.set_input_size(96)
    assert model.backbone.with_cp
    assert model.backbone.stages[0].with_cp
    with pytest.raises(ValueError, match="patch_size=8: the patches of these networks are fixed"):
        model.set_input_size(96, patch_size=8)


@pytest.mark.parametrize(("before", "after"), [((224, 256), 224), (384, (288, 512)), ((288, 512), 512)])  # 18x32 = 24²
def test_set_input_size_between_sizes_that_are_not_square(before, after):
    model = mmlisa.create_model("flatten_deit_t", img_size=before, num_classes=0)
    (h, w), (new_h, new_w) = (side if isinstance(side, tuple) else (side, side) for side in (before, after))
    position = model.backbone.stem.position
    picture = position.detach()[:, 1:].clone().transpose(1, 2).unflatten(2, (h // 16, w // 16))
    token = position.detach()[:, :1].clone()
    model.set_input_size(after)
    expected = nn.functional.interpolate(picture, size=(new_h // 16, new_w // 16), mode="bicubic").flatten(2).mT
    torch.testing.assert_close(model.backbone.stem.position, torch.cat([token, expected], dim=1), check_layout=False)
    assert model.backbone.stem.resize.grid == (new_h // 16, new_w // 16)
    model.eval()(torch.zeros(1, 3, new_h, new_w))


def test_the_input_size_may_be_set_again():
    model = deepcopy(on_meta("flatten_deit_t"))
    shapes = {key: tensor.shape for key, tensor in model.state_dict().items()}
    model.set_input_size(96)
    model.set_input_size(224)
    assert {key: tensor.shape for key, tensor in model.state_dict().items()} == shapes


def test_a_frozen_network_may_be_pruned():
    model = mmlisa.create_model("lcnet_x0_25", frozen_stages=4)
    model.prune_intermediate_layers([1])
    model.train()
    assert not any(parameter.requires_grad for parameter in model.backbone.parameters())


class TestPublished:
    """timm's Hub round trip and ``pretrained_cfg``."""

    def test_round_trip(self, tmp_path):
        model = timm.create_model("lcnet_x0_25", num_classes=7, global_pool="max").eval()
        save_for_hf(model, tmp_path, model_args=dict(global_pool="max"))
        again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
        image = torch.rand(1, 3, 64, 64)
        assert torch.equal(again(image), model(image))
        assert (again.num_classes, again.head.global_pool) == (7, "max")
        state = model.backbone.state_dict()
        features = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, features_only=True)
        getter = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, features_only=True, feature_cls="getter")
        for backbone in (features.backbone, getter.model.backbone):
            assert all(torch.equal(state[key], tensor) for key, tensor in backbone.state_dict().items())
        tuned = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=3, in_chans=1).eval()
        weights = [one.get_submodule(one.default_cfg["first_conv"]).weight for one in (model, tuned)]
        torch.testing.assert_close(weights[1], weights[0].sum(1, keepdim=True))
        assert tuned(torch.rand(1, 1, 64, 64)).shape == (1, 3)

    def test_options_of_the_operator_are_saved(self, tmp_path):
        attention = dict(type="SoftmaxAttention")
        model = timm.create_model("flatten_deit_t", attention=attention, num_classes=2).eval()
        save_for_hf(model, tmp_path, model_args=dict(attention=attention))
        again = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
        image = torch.rand(1, 3, 64, 64)
        assert torch.equal(again(image), model(image))

    def test_pretrained_cfg(self):
        cfg = dict(num_classes=5, mean=(0.5, 0.5, 0.5), input_size=(3, 160, 160))
        model = timm.create_model("lcnet_x0_25", pretrained_cfg=cfg)
        assert model.num_classes == 5
        data = resolve_model_data_config(model)
        assert (data["mean"], data["input_size"]) == ((0.5, 0.5, 0.5), (3, 160, 160))
        overlay = dict(state_dict=model.state_dict(), num_classes=5)
        again = timm.create_model("lcnet_x0_25", pretrained=True, pretrained_cfg_overlay=overlay)
        assert all(map(torch.equal, again.state_dict().values(), model.state_dict().values()))
        with pytest.raises(RuntimeError, match=r"size mismatch|Missing key"):
            timm.create_model("esnet_x0_75", pretrained=True, pretrained_cfg_overlay=overlay)

    def test_hosts_are_timms(self):
        from mmlisa.conversion import known_sources

        sources = set(known_sources())
        assert {f"timm:{host}" for host in HOSTS.values()} <= sources
        with pytest.raises(ValueError, match=r"'timm:swin_tiny_patch4_window7_224\.ms_in1k'"):
            timm.create_model("flatten_swin_t", pretrained=True)
        with pytest.raises(ValueError, match="no weights of 'lisanet_i' are published; name a file"):
            timm.create_model("lisanet_i", pretrained=True, features_only=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(output_stride=16), "output_stride=16: the strides of these networks are fixed"),
        (dict(output_stride=16, features_only=True), "output_stride=16"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        timm.create_model("lcnet_x0_25", **options)


def test_formats():
    with pytest.raises(ValueError, match="output_fmt='NHWC'; it must be one of"):
        on_meta("lcnet_x0_25").forward_intermediates(blank(64, 64), output_fmt="NHWC")


@pytest.mark.parametrize("operator", ["GlobalFilter", "AgentAttention"])
def test_set_input_size_resamples_what_an_operator_has_for_each_place(operator):
    model = mmlisa.create_model("lisanet_i", attention=dict(type=operator))
    expected = mmlisa.create_model("lisanet_i", attention=dict(type=operator), img_size=(160, 256))
    expected.load_state_dict(model.state_dict())
    model.set_input_size((160, 256))
    assert all(map(torch.equal, model.state_dict().values(), expected.state_dict().values()))
    image = torch.randn(1, 3, 160, 256)
    torch.testing.assert_close(model.eval()(image), expected.eval()(image))


def test_a_size_with_other_layers_is_refused():
    model = deepcopy(on_meta("flatten_cswin_t"))
    shapes = {key: tensor.shape for key, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match="img_size=96: this network has other layers at that size"):
        model.set_input_size(96)
    assert {key: tensor.shape for key, tensor in model.state_dict().items()} == shapes


@pytest.mark.parametrize("name", ["lcnet_x0_25", "hylisanet_s"])
def test_the_drop_rate_reaches_the_head(name):
    model = timm.create_model(name, drop_rate=0.3)
    assert [part.p for part in model.head.modules() if isinstance(part, nn.Dropout)] == [0.3]
