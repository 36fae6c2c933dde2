"""Promises of every backbone, on one narrow network per kind."""

import copy
from math import prod, sqrt

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from helpers.backbones import CASES, KINDS
from mmlisa.inference import faster
from mmlisa.models import backbones
from mmlisa.models.backbones import CastlingLeViT, ESNet, FLattenPVTv2, LCNet, LiSANet, iViT
from mmlisa.registry import MODELS

# The norm that the official FLatten-PVT holds and never applies.
NEVER_TRAINED = {"norm.weight", "norm.bias"}
PLAIN = ("flatten-deit", "dinov3")
PYRAMIDS = [name for name in KINDS if name not in PLAIN]


@pytest.fixture(params=KINDS)
def backbone(request) -> nn.Module:
    return build(request.param)


def build(name: str, **options) -> nn.Module:
    torch.manual_seed(0)
    return MODELS.build({**CASES[name], **options})


def loss_of(maps: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return sum((m * torch.randn_like(m)).sum() for m in maps)


def expected_sizes(backbone: nn.Module, height: int, width: int) -> list[tuple[int, int, int]]:
    if isinstance(backbone, backbones.iViT):  # CAFormer's rounding of the stem's grid
        height, width = (4 * ((n + 1) // 4) for n in (height, width))
    return [
        (channels, -(-height // stride), -(-width // stride))
        for channels, stride in zip(backbone.feature_channels, backbone.feature_strides, strict=True)
    ]


def test_every_backbone_is_here():
    assert {case["type"] for case in CASES.values()} == set(backbones.__all__)


@pytest.mark.parametrize("name", CASES)
def test_every_case_takes_any_size_and_trains(name):
    backbone = build(name).eval()
    for size in ((97, 131), (32, 32)):
        with torch.inference_mode():
            maps = backbone(torch.randn(1, 3, *size))
        assert [tuple(m.shape[1:]) for m in maps] == expected_sizes(backbone, *size)
        # mmcv's compiled operators (RoIAlign) assume contiguous NCHW and do not check.
        assert all(m.is_contiguous() for m in maps)
    loss_of(backbone.train()(torch.randn(2, 3, 64, 72))).backward()
    trainable = {name: p for name, p in backbone.named_parameters() if p.requires_grad}
    assert {name for name, _ in backbone.named_parameters()} - set(trainable) <= NEVER_TRAINED
    assert not [name for name, p in trainable.items() if p.grad is None or not p.grad.isfinite().all()]


def test_small_image_is_refused():
    with pytest.raises(ValueError, match="31x64"):
        build("lcnet")(torch.randn(1, 3, 31, 64))


@pytest.mark.parametrize("size", [200, (200, 136)])
@pytest.mark.parametrize("name", [name for name in KINDS if "image_size" in CASES[name]])
def test_at_the_size_of_its_pretraining_nothing_is_resized(name, size, monkeypatch):
    """Sizes that no stride but the first divides: a table with one row too few would be interpolated."""
    if name == "castling-mvitv2" and size == (200, 136):
        pytest.skip("MViTv2's tables are of square images")
    network = build(name, image_size=size).eval()
    monkeypatch.setattr(nn.functional, "interpolate", lambda *args, **options: pytest.fail("a table is resized"))
    height, width = (size, size) if isinstance(size, int) else size
    with torch.no_grad():
        network(torch.randn(1, 3, height, width))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(backbone, dtype):
    """Weights in half precision against fp32, and training under autocast with large activations."""
    image = torch.randn(1, 3, 64, 72)
    with torch.no_grad():
        for p in backbone.parameters():  # a new LCNet's maps are below float16's normal range
            p.add_(0.02 * torch.randn_like(p))
        half = copy.deepcopy(backbone).to(dtype).eval()
        for a, b in zip(half(image.to(dtype)), backbone.eval()(image), strict=True):
            assert a.dtype == dtype
            assert (a.float() - b).norm() < 2e-2 * b.norm()
    with torch.autocast("cpu", dtype=dtype):
        maps = backbone.train()(100 * torch.randn(2, 3, 64, 72))
        loss = sum(m.float().square().mean() for m in maps)
    loss.backward()
    assert all(m.isfinite().all() for m in maps)
    # Some operators leave the range of fp16 and return fp32; none leaves that of bf16.
    assert dtype == torch.float16 or all(m.dtype == dtype for m in maps)
    assert all(p.grad.isfinite().all() for p in backbone.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", ["lisanet-hybrid", "flatten-swin", "flatten-deit", "lcnet", "ivit", "mila"])
def test_compiled_network_equals_itself(name):
    """Captured whole, without a break of the graph, also in training under autocast."""
    torch.compiler.reset()
    backbone, image = build(name).eval(), torch.randn(1, 3, 75, 64)
    compiled = torch.compile(backbone, backend="aot_eager", fullgraph=True)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(image), backbone(image), rtol=1e-4, atol=1e-5)
    trained = torch.compile(backbone.train(), backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        sum(m.float().mean() for m in trained(image)).backward()


def test_built_on_the_meta_device_it_is_the_same_network(backbone, request):
    """Loaded over memory of any content: nothing that the network needs is missing in its state dict."""
    with torch.device("meta"):
        empty = MODELS.build(CASES[request.node.callspec.params["backbone"]])
    empty, image = empty.to_empty(device="cpu"), torch.randn(1, 3, 75, 64)
    for tensor in (*empty.parameters(), *empty.buffers()):
        tensor.data.fill_(-(10**9) if not tensor.is_floating_point() else torch.nan)
    empty.load_state_dict(backbone.state_dict())
    with torch.no_grad():
        assert all(map(torch.equal, empty.eval()(image), backbone.eval()(image)))


@pytest.mark.parametrize("kind", sorted({CASES[name]["type"] for name in KINDS}))
def test_gradients_of_a_padded_image_are_no_larger(kind):
    """In a network of full depth: what turns zero pixels into zero tokens multiplies gradients in every block."""
    torch.manual_seed(0)
    backbone = MODELS.build(dict(type=kind)).train()
    largest = []
    for pixels in (256, 64):
        image = torch.randn(2, 3, 64, 256)
        image[1, :, :, pixels:] = 0
        backbone.zero_grad()
        loss_of(backbone(image)).backward()
        largest.append(max(float(p.grad.abs().max()) for p in backbone.parameters() if p.grad is not None))
    assert largest[0] > 1
    assert largest[1] < 100 * largest[0]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", [*KINDS, "ivit", "mila"])
def test_optimized_for_cpu_it_computes_the_same_in_chunks(name, monkeypatch, autocast):
    monkeypatch.setattr(faster, "CHUNK", 5000 // torch.get_num_threads())
    backbone, image = build(name).eval(), torch.randn(2, 3, 101, 67)
    optimized = faster.optimize_for_cpu(copy.deepcopy(backbone))
    with torch.autocast("cpu", enabled=autocast), torch.inference_mode():
        maps, expected = optimized(image), backbone(image)
    tolerance = dict(rtol=0.1, atol=0.1) if autocast else dict(rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(maps, expected, **tolerance)


@pytest.mark.parametrize("name", PYRAMIDS)
def test_maps_come_from_fine_to_coarse_whichever_are_returned(name):
    whole = build(name).eval()
    two = build(name, out_indices=(-1, 1)).eval()
    two.load_state_dict(whole.state_dict(), strict=False)
    assert two.out_indices == (1, 3)
    assert two.feature_channels == whole.feature_channels[1::2]
    assert two.feature_strides == whole.feature_strides[1::2] == (8, 32)
    image = torch.randn(1, 3, 67, 96)
    with torch.no_grad():
        torch.testing.assert_close(two(image), whole(image)[1::2], rtol=0, atol=0)


@pytest.mark.parametrize("name", KINDS)
def test_stages_after_the_last_map_are_neither_run_nor_trained(name):
    backbone = build(name, out_indices=(0, -2)).train()
    backbone.stages[-1].forward = None  # fails if it is called
    loss_of(backbone(torch.randn(2, 3, 64, 72))).backward()
    parameters = dict(backbone.named_parameters())
    unused = {n for n in parameters if n.startswith(f"stages.{backbone.num_stages - 1}.")}
    assert unused
    assert {n for n, p in parameters.items() if not p.requires_grad} - NEVER_TRAINED == unused
    assert {n for n, p in parameters.items() if p.requires_grad and p.grad is None} == set()
    last = [block for stage in backbone.layer_names()[:-1] for block in stage][-1]
    depth, count = backbone.get_layer_depth(f"{last}weight")
    assert depth == count - 2, "the layer before that of the norms, for learning rates that decay"


def test_drop_path_rates_grow_linearly(backbone, request):
    name = request.node.callspec.params["backbone"]
    rates = [m.drop_prob for m in build(name, drop_path_rate=0.4).modules() if hasattr(m, "drop_prob")]
    assert rates == pytest.approx(torch.linspace(0, 0.4, len(rates) + 1).tolist()[1:])  # the first block has none


@pytest.mark.parametrize("name", [*KINDS, "lisanet-bn", "levit"])
def test_with_cp_changes_nothing(name):
    """In fp64, with dropped paths, and batch norms whose statistics count every image once."""
    results = []
    for with_cp in (False, True):
        backbone = build(name, with_cp=with_cp, drop_path_rate=0.3).double().train()
        torch.manual_seed(1)
        maps = backbone(torch.randn(2, 3, 64, 72, dtype=torch.float64))
        loss_of(maps).backward()
        gradients = {n: p.grad for n, p in backbone.named_parameters() if p.grad is not None}
        results.append((maps, gradients, dict(backbone.named_buffers())))
    plain, recomputed = results
    largest = max(g.abs().max() for g in plain[1].values())
    torch.testing.assert_close(recomputed, plain, rtol=1e-9, atol=1e-9 * largest.item())


@pytest.mark.parametrize("frozen", [-1, 0, 1, "all"])
def test_frozen_stages(backbone, request, frozen):
    """Their parameters need no gradient and they are in eval mode, so that a step changes no statistics, either."""
    name = request.node.callspec.params["backbone"]
    frozen = backbone.num_stages if frozen == "all" else frozen
    backbone = build(name, frozen_stages=frozen)
    built = {n for n, p in backbone.named_parameters() if not p.requires_grad}
    backbone.eval().train()
    parts = ["stem.", *(f"{part}{i}." for i in range(frozen) for part in ("stages.", "norm"))] if frozen >= 0 else []
    if frozen == backbone.num_stages and name in PLAIN:
        parts.append("norm.")
    expected = {n for n, _ in backbone.named_parameters() if n.startswith(tuple(parts))}
    found = {n for n, p in backbone.named_parameters() if not p.requires_grad}
    assert found - NEVER_TRAINED == expected - NEVER_TRAINED
    assert found == built, "DistributedDataParallel registers what is not frozen when it wraps the model"
    assert found >= {n for n, _ in backbone.named_parameters()} or frozen < backbone.num_stages
    for n, module in backbone.named_modules():
        if f"{n}.".startswith(tuple(parts)):
            assert not module.training, n


@pytest.mark.parametrize("name", ["lisanet-bn", "lcnet"])
def test_norm_eval(name):
    for norm_eval in (True, False):
        norms = [m for m in build(name, norm_eval=norm_eval).train().modules() if isinstance(m, _BatchNorm)]
        assert norms
        assert all(norm.training is not norm_eval for norm in norms)


@pytest.mark.parametrize("name", ["lisanet", "flatten-swin", "castling-mvitv2"])
def test_attention_is_a_delta_of_the_archs_operator(name):
    operator = build(name).attention
    # MMEngine's new-style configs name classes by themselves.
    for cfg in ({}, *(dict(type=kind) for kind in (operator["type"], MODELS.get(operator["type"])))):
        assert build(name, attention=cfg).attention == {**operator, **cfg}
    assert build(name, attention=dict(type="HydraAttention")).attention == dict(type="HydraAttention")


def test_head_mixing_survives_initialisation():
    """Small random mixing matrices would shrink the output of the attention to nothing."""
    backbone = iViT(dict(base="tiny", depths=(1, 1, 1, 1)), init_cfg=dict(type="TruncNormal", layer="Linear", std=0.02))
    backbone.init_weights()
    mixings = {n: p for n, p in backbone.named_parameters() if ".mix_" in n}
    assert len(mixings) == 8
    assert all(torch.equal(p, torch.eye(len(p))) for p in mixings.values())
    assert backbone.stages[2].blocks[0].token_mixer.qkv.weight.std() < 0.03


# Hosts whose convolutions start by their fan-out, the mobile ones and those after PVTv2, and whose layers all start alike.
BY_FAN_OUT = (LiSANet, LCNet, ESNet, FLattenPVTv2)


def expected_deviation(model: nn.Module, name: str, module: nn.Module, parameter: Tensor) -> float | None:
    """Linear layers at 0.02 and convolutions as PyTorch has them, unless the host's own code differs."""
    if isinstance(module, nn.Conv2d | nn.Conv3d | nn.Linear):
        if isinstance(model, iViT):
            return 0.02
        if isinstance(module, nn.Linear) and not isinstance(model, CastlingLeViT):
            return 0.02
        if not isinstance(model, BY_FAN_OUT):
            return 1 / sqrt(3 * parameter[0].numel())
        return sqrt(2 / (module.out_channels // module.groups * prod(module.kernel_size)))
    if name.startswith("kernel_") and isinstance(module.norm, nn.Identity):
        return prod(parameter.shape[parameter.ndim - 2 :]) ** -0.5
    return 0.0 if name in ("bias_a", "scale", "positional_encoding", "attention_biases") else 0.02


@pytest.mark.parametrize("case", CASES)
def test_weights_start_by_formula(case):
    torch.manual_seed(0)
    model = MODELS.build(CASES[case])
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.ndim > 1 and parameter.numel() > 100 and not name.startswith("mix_"):
                expected = expected_deviation(model, name, module, parameter)
                noise = 5 / sqrt(2 * parameter.numel())
                assert parameter.std().item() == pytest.approx(expected, rel=0.02 + noise), f"{path}.{name}"
                assert abs(parameter.mean()) <= 5 * expected / sqrt(parameter.numel()), f"{path}.{name}"
            if name == "bias" and isinstance(module, nn.Linear) and not isinstance(model, CastlingLeViT):
                assert not parameter.any(), f"{path}.{name}"
