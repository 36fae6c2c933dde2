"""What every backbone promises, on narrow archs: one row per host, a few more where an option changes the path."""

import copy
import pickle
from importlib import import_module

import pytest
import torch
from timm.layers import DropPath
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.backbones import CASES
from mmlisa.deploy import cpu
from mmlisa.models import backbones
from mmlisa.registry import MODELS

# The norm that the official FLatten-PVT holds and never applies.
NEVER_TRAINED = {"norm.weight", "norm.bias"}

# Hosts taken from a library keep its rounding of the stem's grid; the stages after it round up like all others.
STEM_SIZES = {"iViT": lambda n: (n + 1) // 4}


@pytest.fixture(params=CASES)
def backbone(request) -> nn.Module:
    torch.manual_seed(0)
    return build(request.param)


def build(name: str, **options) -> nn.Module:
    cfg = {**CASES[name], **options}
    return MODELS.get(cfg.pop("type"))(**cfg)


def expected_sizes(backbone: nn.Module, height: int, width: int) -> list[tuple[int, int, int]]:
    stem_size = STEM_SIZES.get(type(backbone).__name__)
    if stem_size:  # the image whose stem grid this is, rounded up
        height, width = (4 * stem_size(n) for n in (height, width))
    return [
        (channels, -(-height // stride), -(-width // stride))
        for channels, stride in zip(backbone.feature_channels, backbone.feature_strides, strict=True)
    ]


def test_every_backbone_is_here():
    assert {case["type"] for case in CASES.values()} == set(backbones.__all__)


@pytest.mark.parametrize(
    "size", [(32, 32), (33, 47), (96, 41), (97, 131), (199, 331), (64, 1024), (1024, 64)], ids="{0[0]}x{0[1]}".format
)
def test_any_size(backbone, size):
    with torch.inference_mode():
        maps = backbone.eval()(torch.randn(1, 3, *size))
    assert isinstance(maps, tuple)
    assert [tuple(m.shape[1:]) for m in maps] == expected_sizes(backbone, *size)
    assert all(m.isfinite().all() for m in maps)
    # mmcv's compiled operators (RoIAlign) assume contiguous NCHW and do not check.
    assert all(m.is_contiguous() for m in maps)


def test_an_image_has_one_answer(backbone):
    """However it is laid out in memory, beside whatever others, with and without gradients, on any number of threads."""
    images = torch.randn(3, 3, 75, 64)
    kept, rounding = images.clone(), dict(rtol=1e-4, atol=1e-4)
    expected = [m.detach() for m in backbone.eval()(images)]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close([m.clone() for m in backbone(images)], expected, **rounding)
    strided = torch.randn(3, 3, 75, 128)
    strided[..., ::2] = images
    layouts = dict(channels_last=images.to(memory_format=torch.channels_last), strided=strided[..., ::2])
    with torch.no_grad():
        for name, image in layouts.items():
            torch.testing.assert_close(list(backbone(image)), expected, **rounding, msg=name)
        alone = list(backbone(images[1:2]))
        torch.testing.assert_close(alone, [m[1:2] for m in expected], **rounding)
        repeated = backbone(images[1:2].expand(2, -1, -1, -1))
        torch.testing.assert_close(list(repeated), [m.expand(2, -1, -1, -1) for m in alone], **rounding)
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            torch.testing.assert_close(list(backbone(images)), expected, **rounding)
        finally:
            torch.set_num_threads(threads)
    assert torch.equal(images, kept)


@pytest.mark.parametrize("scale", [0, 1e-4, 1, 100])
def test_images_of_any_scale_in_any_precision(backbone, scale):
    image = scale * torch.randn(1, 3, 64, 72)
    with torch.no_grad():
        single, precise = backbone.eval()(image), copy.deepcopy(backbone).double()(image.double())
        for a, b in zip(single, precise, strict=True):
            assert b.dtype == torch.float64
            torch.testing.assert_close(a, b.float(), rtol=1e-3, atol=1e-3)
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype=dtype):
                assert all(m.isfinite().all() for m in backbone(image))


@pytest.mark.skipif(TorchVersion(torch.__version__) < "2.12", reason="tried with PyTorch 2.12 only")
def test_compiled_network_equals_itself(backbone, request):
    """Captured whole, without a break of the graph; compiled by inductor where a compiler is asked for."""
    inductor = request.config.getoption("--inductor")
    torch.compiler.reset()
    compiled = torch.compile(backbone.eval(), backend="inductor" if inductor else "aot_eager", fullgraph=True)
    image = torch.randn(1, 3, 75, 64)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(image), backbone(image), rtol=1e-4, atol=1e-5)


def test_copies_are_the_same_network(backbone, request):
    image = torch.randn(1, 3, 75, 64)
    fresh = build(request.node.callspec.params["backbone"]).eval()
    with torch.no_grad():
        expected = backbone.eval()(image)
        fresh.load_state_dict(backbone.state_dict())
        for other in (copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone)), fresh):
            assert all(map(torch.equal, other(image), expected))


def test_what_is_no_number_comes_out_as_no_number(backbone):
    with torch.no_grad():
        for mode in (True, False):
            assert all(m.isnan().all() for m in backbone.train(mode)(torch.full((2, 3, 64, 72), torch.nan)))


@pytest.mark.parametrize("size", [(31, 64), (64, 31)])
def test_small_image_is_refused(backbone, size):
    with pytest.raises(ValueError, match=f"{size[0]}x{size[1]}"):
        backbone(torch.randn(1, 3, *size))


def test_every_trainable_parameter_gets_a_gradient(backbone):
    maps = backbone.train()(torch.randn(2, 3, 64, 72))
    sum((m * torch.randn_like(m)).sum() for m in maps).backward()
    trainable = {name: p for name, p in backbone.named_parameters() if p.requires_grad}
    assert {n for n, _ in backbone.named_parameters()} - set(trainable) <= NEVER_TRAINED
    assert not [name for name, p in trainable.items() if p.grad is None]
    assert all(p.grad.isfinite().all() for p in trainable.values())


@pytest.mark.parametrize("name", backbones.__all__)
def test_gradients_of_a_padded_image_are_no_larger(name):
    """In a network of full depth: what turns zero pixels into zero tokens multiplies gradients in every block."""
    torch.manual_seed(0)
    backbone = MODELS.build(dict(type=name)).train()
    largest = []
    for pixels in (512, 64):
        image = torch.randn(2, 3, 64, 512)
        image[1, :, :, pixels:] = 0
        backbone.zero_grad()
        sum((m * torch.randn_like(m)).sum() for m in backbone(image)).backward()
        largest.append(max(float(p.grad.abs().max()) for p in backbone.parameters() if p.grad is not None))
    assert largest[0] > 1
    assert largest[1] < 100 * largest[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_with_large_activations_is_finite(backbone, dtype):
    with torch.autocast("cpu", dtype=dtype):
        maps = backbone.train()(100 * torch.randn(2, 3, 64, 72))
        loss = sum(m.float().square().mean() for m in maps)
    loss.backward()
    assert all(m.isfinite().all() for m in maps)
    assert all(p.grad.isfinite().all() for p in backbone.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", CASES)
def test_eval_is_deterministic_and_follows_the_parameters(name):
    """Caches of an eval forward must not outlive a change of the parameters."""
    backbone, image = build(name).eval(), torch.randn(1, 3, 75, 64)
    with torch.no_grad():
        first, again = backbone(image), backbone(image)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        for p in backbone.parameters():
            p.mul_(1.1)
        changed = backbone(image)
        fresh = build(name).eval()
        fresh.load_state_dict(backbone.state_dict())
        expected = fresh(image)
    assert not torch.equal(first[-1], changed[-1])
    torch.testing.assert_close(changed, expected, rtol=1e-4, atol=1e-5)


# Few enough tokens for several chunks in one stage or another.
@pytest.mark.parametrize("chunk", [5000, 9000])
@pytest.mark.parametrize("autocast", [False, True])
def test_optimized_for_cpu_it_computes_the_same(backbone, monkeypatch, autocast, chunk):
    monkeypatch.setattr(cpu, "CHUNK", chunk // torch.get_num_threads())
    image = torch.randn(2, 3, 101, 67)
    untouched, names = image.clone(), list(backbone.state_dict())
    optimized = cpu.optimize_for_cpu(copy.deepcopy(backbone.eval()))
    assert list(optimized.state_dict()) == names
    tolerance = dict(rtol=0.1, atol=0.1) if autocast else dict(rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", enabled=autocast):
        with torch.inference_mode():
            expected, maps = backbone(image), optimized(image)
        with_gradients = [m.detach() for m in optimized(image)]
    assert torch.equal(image, untouched)
    for found, graded, wanted in zip(maps, with_gradients, expected, strict=True):
        assert found.dtype == graded.dtype == wanted.dtype
        torch.testing.assert_close(found.float(), wanted.float(), **tolerance)
        torch.testing.assert_close(graded.float(), wanted.float(), **tolerance)


class Kept:
    """Outputs beside copies of them at the time they were returned."""

    def __init__(self) -> None:
        self.outputs: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def add(self, name, output):
        tensors = output if isinstance(output, tuple | list) else (output,)
        self.outputs += [(name, t, t.detach().clone()) for t in tensors if isinstance(t, torch.Tensor)]
        return output

    def hook(self, name):
        def keep(module, inputs, output):
            self.add(name, output)

        return keep

    def overwritten(self) -> list[str]:
        assert self.outputs
        return [
            name for name, tensor, clone in self.outputs if not torch.equal(tensor.nan_to_num(), clone.nan_to_num())
        ]


class Wrapper(nn.Module):
    """A module around another that keeps what it returns, as quantisation and LoRA libraries have it."""

    def __init__(self, module, kept):
        super().__init__()
        self.module, self.kept = module, kept

    def forward(self, *args):
        return self.kept.add(type(self.module).__name__, self.module(*args))


class Dispatch(TorchDispatchMode):
    """Keeps what every operator returns."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.kept.add(str(func), func(*args, **(kwargs or {})))


@pytest.mark.parametrize("by", ["hook", "wrapper", "class", "dispatch"])
def test_what_is_kept_is_never_overwritten(backbone, by, monkeypatch):
    """By hooks on all modules, wrappers around blocks, a patched class, and a dispatch mode."""
    kept, image = Kept(), torch.randn(1, 3, 101, 67)
    expected = [m.detach() for m in backbone.eval()(image)]
    if by == "hook":
        for name, module in backbone.named_modules():
            module.register_forward_hook(kept.hook(name))
    elif by == "wrapper":
        for stage in backbone.stages:
            stage.blocks = nn.ModuleList(Wrapper(block, kept) for block in stage.blocks)
            if isinstance(stage.downsample, nn.ModuleList):
                stage.downsample = nn.ModuleList(Wrapper(block, kept) for block in stage.downsample)
    elif by == "class":
        forward = nn.Linear.forward
        monkeypatch.setattr(nn.Linear, "forward", lambda self, x: kept.add("Linear", forward(self, x)))
        convolve = nn.Conv2d.forward
        monkeypatch.setattr(nn.Conv2d, "forward", lambda self, x: kept.add("Conv2d", convolve(self, x)))
    with torch.no_grad():
        if by == "dispatch":
            with Dispatch(kept):
                maps = backbone(image)
        else:
            maps = backbone(image)
    assert not kept.overwritten()
    torch.testing.assert_close(list(maps), expected, rtol=1e-4, atol=1e-4)


def test_hooks_see_the_same_when_optimized_for_cpu(backbone, monkeypatch):
    """Every module that is called with gradients is called without, and its output stays what it was."""
    monkeypatch.setattr(cpu, "CHUNK", 5000 // torch.get_num_threads())
    kept, image = Kept(), torch.randn(1, 3, 101, 67)
    optimized = cpu.optimize_for_cpu(backbone.eval())
    hooks = [module.register_forward_hook(kept.hook(name)) for name, module in optimized.named_modules()]
    optimized(image)
    with_gradients = [name for name, _, _ in kept.outputs]
    kept.outputs.clear()
    with torch.inference_mode():
        optimized(image)
    assert [name for name, _, _ in kept.outputs] == with_gradients
    assert not kept.overwritten()
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("name", CASES)
def test_maps_do_not_depend_on_which_are_returned(name):
    whole = build(name, out_indices=None) if "out_indices" not in CASES[name] else build(name)
    image, last = torch.randn(1, 3, 67, 64), whole.out_indices[-1]
    alone = build(name, out_indices=(last,)).eval()
    alone.load_state_dict(whole.state_dict(), strict=False)
    with torch.no_grad():
        torch.testing.assert_close(alone(image)[0], whole.eval()(image)[-1], rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in CASES if "out_indices" not in CASES[name]])
def test_maps_come_from_fine_to_coarse_in_any_order(name):
    whole = build(name, out_indices=None).eval()
    last, second, image = len(whole.feature_channels) - 1, 1, torch.randn(1, 3, 67, 96)
    if last < 2:
        pytest.skip("all blocks have one stride")
    two = build(name, out_indices=(last, second)).eval()
    two.load_state_dict(whole.state_dict(), strict=False)
    assert two.out_indices == (second, last)
    assert two.feature_channels == (whole.feature_channels[second], whole.feature_channels[last])
    assert two.feature_strides == (whole.feature_strides[second], whole.feature_strides[last])
    with torch.no_grad():
        maps = whole(image)
        torch.testing.assert_close(two(image), (maps[second], maps[last]), rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_stages_after_the_last_map_are_neither_run_nor_trained(name):
    if build(name).num_stages == 1:
        pytest.skip("one stage")
    backbone = build(name, out_indices=(0, -2)).train()
    backbone.stages[-1].forward = None  # fails if it is called
    maps = backbone(torch.randn(2, 3, 64, 72))
    sum((m * torch.randn_like(m)).sum() for m in maps).backward()
    unused = {n for n, _ in backbone.named_parameters() if n.startswith(f"stages.{backbone.num_stages - 1}.")}
    assert unused
    assert {n for n, p in backbone.named_parameters() if not p.requires_grad} - NEVER_TRAINED == unused
    assert {n for n, p in backbone.named_parameters() if p.requires_grad and p.grad is None} == set()
    last = [block for stage in backbone.layer_names()[:-1] for block in stage][-1]
    depth, count = backbone.get_layer_depth(f"{last}weight")
    assert depth == count - 2, "the layer before that of the norms, for learning rates that decay"


def test_vit3_has_no_class_token():
    with pytest.raises(ValueError, match="class_token=True"):
        backbones.ViT3(dict(base="tiny", class_token=True))


@pytest.mark.parametrize("size", [200, (200, 136)])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "image_size" in case])
def test_at_the_size_of_its_pretraining_nothing_is_resized(name, size, monkeypatch):
    """Sizes that no stride but the first divides: a table with one row too few would be interpolated."""
    if "mvitv2" in name and size == (200, 136):
        pytest.skip("MViTv2's tables are of square images")
    network = build(name, image_size=size).eval()
    monkeypatch.setattr(nn.functional, "interpolate", lambda *args, **options: pytest.fail("a table is resized"))
    height, width = (size, size) if isinstance(size, int) else size
    with torch.no_grad():
        network(torch.randn(1, 3, height, width))


@pytest.mark.parametrize("name", CASES)
def test_drop_path_rates_grow_linearly(name):
    options = dict(drop_path_rate=0.4)
    rates = [m.drop_prob for m in build(name, **options).modules() if isinstance(m, DropPath)]
    if name.startswith("levit"):  # one rate for all blocks
        assert set(rates) == {0.4}
    else:
        expected = torch.linspace(0, 0.4, len(rates)).tolist()
        assert rates == pytest.approx(expected)


@pytest.mark.parametrize("name", CASES)
def test_with_cp_changes_nothing(name):
    """In fp64, with dropped paths, running statistics, and a graph that is passed backwards twice."""
    results = []
    for with_cp in (False, True):
        torch.manual_seed(0)
        backbone = build(name, with_cp=with_cp, drop_path_rate=0.3).double().train()
        torch.manual_seed(1)
        maps = backbone(torch.randn(2, 3, 64, 72, dtype=torch.float64))
        loss = sum((m * torch.randn_like(m)).sum() for m in maps)
        gradients = []
        for _ in range(2):
            backbone.zero_grad()
            loss.backward(retain_graph=True)
            gradients.append({n: p.grad.clone() for n, p in backbone.named_parameters() if p.grad is not None})
        results.append((maps, gradients, dict(backbone.named_buffers())))
    plain, recomputed = results
    largest = max(g.abs().max() for g in plain[1][0].values())
    assert largest > 1e-3
    torch.testing.assert_close(recomputed, plain, rtol=1e-9, atol=1e-9 * largest.item())


@pytest.mark.parametrize("name", ["lisanet-hybrid", "levit"])
def test_with_cp_compiles_in_training(name):
    """Layer norms; and batch norms, whose statistics count every image once and whose layers are not recomputed."""
    torch.manual_seed(0)
    plain, compiled = (build(name, with_cp=with_cp, drop_path_rate=0.0).train() for with_cp in (False, True))
    compiled.load_state_dict(plain.state_dict())
    image = torch.randn(2, 3, 64, 64)
    for run in (plain, torch.compile(compiled, backend="aot_eager")):
        sum(m.abs().mean() for m in run(image)).backward()
    for a, b in zip(compiled.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(dict(compiled.named_buffers()), dict(plain.named_buffers()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_recomputing_changes_no_gradient(name, dtype, monkeypatch):
    """What training computes again, or in closed form, against PyTorch's own gradients, with every module called."""
    results, called = [], []
    for is_plain in (False, True):
        torch.manual_seed(0)
        backbone = build(name, drop_path_rate=0.1).train().to(dtype)
        if is_plain:
            for module in ("recompute", "focused_linear"):
                monkeypatch.setattr(import_module(f"mmlisa.ops.{module}"), "is_traced", lambda: True)
            for part in backbone.modules():
                part.register_forward_hook(lambda module, inputs, output: called.append(module))
        torch.manual_seed(1)
        maps = backbone(torch.randn(2, 3, 64, 72, dtype=dtype))
        sum((m * torch.randn_like(m)).sum() for m in maps).backward()
        gradients = {n: p.grad for n, p in backbone.named_parameters() if p.grad is not None}
        results.append(([m.detach() for m in maps], gradients))
    (maps, found), (plain_maps, expected) = results
    torch.testing.assert_close(maps, plain_maps)
    assert found.keys() == expected.keys()
    # Some gradients are differences of large sums: rounding counts beside the largest entry of the network as well.
    relative, absolute = (1e-9, 1e-12) if dtype == torch.float64 else (1e-4, 1e-6)
    scale = max(g.abs().max() for g in expected.values())
    for parameter, gradient in found.items():
        difference, size = (gradient - expected[parameter]).abs().max(), expected[parameter].abs().max()
        assert difference <= relative * size + absolute * scale, parameter


@pytest.mark.parametrize("name", CASES)
def test_frozen_stages(name):
    whole = build(name)
    num_stages = whole.num_stages
    previous = 0
    for frozen in range(-1, num_stages + 1):
        backbone = build(name, frozen_stages=frozen).train()
        count = sum(not p.requires_grad for n, p in backbone.named_parameters() if n not in NEVER_TRAINED)
        assert count > previous if frozen >= 0 else count == 0
        previous = count
        frozen_norms = [
            m
            for s in range(frozen + 1)
            for part in backbone.stage_modules(s)
            for m in part.modules()
            if isinstance(m, _BatchNorm)
        ]
        assert not any(m.training for m in frozen_norms)
    assert all(not p.requires_grad for p in backbone.parameters()), "stem and stages leave parameters out"


# What is frozen with the stem and the first stage, and what belongs to neither.
FIRST_STAGE = {
    "lisanet": ("stem.", "stages.0.", "norm0."),
    "lisanet-isotropic": ("stem.", "stages.0.", "norm0."),
    "flatten-swin": ("stem.", "stages.0.", "norm0."),
    "flatten-cswin": ("stem.", "stages.0.", "norm0."),
    "castling-mvitv2": ("stem.", "stages.0.", "norm0."),
    "ivit": ("stem.", "stages.0.", "norm0."),
    **dict.fromkeys(
        ("flatten-pvt", "flatten-pvtv2", "lcnet", "lcnet-vit", "esnet", "esnet-vit", "levit", "castling-deit"),
        ("stem.", "stages.0."),
    ),
}


@pytest.mark.parametrize("name", FIRST_STAGE)
def test_frozen_stages_1_freezes_the_stem_and_the_first_stage(name):
    backbone = build(name, frozen_stages=1).train()
    frozen = {n for n, p in backbone.named_parameters() if not p.requires_grad} - NEVER_TRAINED
    assert frozen == {n for n, _ in backbone.named_parameters() if n.startswith(FIRST_STAGE[name])}
    assert {n.split(".")[0] for n in frozen} == {prefix.split(".")[0] for prefix in FIRST_STAGE[name]}
    untrained = {n for n, m in backbone.named_modules() if n and not m.training}
    assert {n for n in untrained if n.split(".")[0] in ("stem", "stages")} == {
        n for n, _ in backbone.named_modules() if f"{n}.".startswith(("stem.", "stages.0."))
    }


@pytest.mark.parametrize("name", CASES)
def test_bad_arguments_are_named(name):
    with pytest.raises(ValueError, match="no-such-arch"):
        build(name, arch="no-such-arch")
    with pytest.raises(ValueError, match="out_indices"):
        build(name, out_indices=(0, 9))
    with pytest.raises(ValueError, match="frozen_stages"):
        build(name, frozen_stages=9)
    with pytest.raises(TypeError, match=r"no_such_option.*it takes arch, attention"):
        build(name, no_such_option=1)
    with pytest.raises(TypeError, match=r"drop_path=0\.1; did you mean drop_path_rate"):
        build(name, drop_path=0.1)
    with pytest.raises(ValueError, match=r"unknown keys \['dephts'\]"):
        build(name, arch=dict(CASES[name].get("arch", {}), dephts=(1,)))
    with pytest.raises(ValueError, match=r"drop_path_rate=1\.5"):
        build(name, drop_path_rate=1.5)


@pytest.mark.parametrize("name", CASES)
def test_attention_is_a_delta_of_the_archs_operator(name):
    backbone = build(name)
    operator = backbone.attention
    if not operator:
        with pytest.raises(ValueError, match="has no attention to replace"):
            build(name, attention=dict(type="LiSA"))
        return
    # MMEngine's new-style configs name classes by themselves.
    for cfg in ({}, *(dict(type=kind) for kind in (operator["type"], MODELS.get(operator["type"])))):
        found = build(name, attention={**CASES[name].get("attention", {}), **cfg}).attention
        assert found == {**operator, **cfg}
    assert build(name, attention=dict(type="HydraAttention")).attention == dict(type="HydraAttention")
    with pytest.raises(TypeError, match="attention='LiSA'"):
        build(name, attention="LiSA")


def test_norm_eval():
    backbone = build("lisanet-bn", norm_eval=True).train()
    norms = [m for m in backbone.modules() if isinstance(m, _BatchNorm)]
    assert norms
    assert not any(m.training for m in norms)
