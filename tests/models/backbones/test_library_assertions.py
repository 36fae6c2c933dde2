"""What the backbone tests of mmdetection and mmpretrain assert of theirs (test_swin.py, test_resnet.py, …), on every backbone."""

import pytest
import torch
from mmengine.runner import load_checkpoint, save_checkpoint
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from helpers.backbones import CASES
from mmlisa.registry import MODELS

pytestmark = pytest.mark.slow

# iViT's first convolution, CAFormer's, has a padding of 2: its grid is floor((n + 1) / 4), and later ones are rounded up.
STEM = {"iViT": lambda n: (n + 1) // 4}


def build(name: str, **options) -> nn.Module:
    torch.manual_seed(0)
    return MODELS.build({**CASES[name], **options})


def sizes(model: nn.Module, height: int, width: int) -> list[tuple[int, int]]:
    if stem := STEM.get(type(model).__name__):
        height, width = 4 * stem(height), 4 * stem(width)
    return [(-(-height // stride), -(-width // stride)) for stride in model.feature_strides]


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    return {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}


def step(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    sum(m.square().mean() for m in model(torch.randn(2, 3, 64, 72))).backward()
    optimizer.step()


@pytest.mark.parametrize("size", [(32, 32), (112, 137)], ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", CASES)
def test_forward_in_training(name, size):
    """After ``init_weights``: a tuple of one map per stage, of the channels and strides that the backbone names."""
    model = build(name)
    model.init_weights()
    assert model.train() is model
    maps = model(torch.randn(2, 3, *size))
    assert isinstance(maps, tuple)
    expected = [
        (2, channels, *grid) for channels, grid in zip(model.feature_channels, sizes(model, *size), strict=True)
    ]
    assert [m.shape for m in maps] == expected


@pytest.mark.parametrize("name", CASES)
def test_out_indices(name):
    """Each stage alone, two stages, negative numbers, lists; parameters of a norm exist for returned maps only."""
    whole = build(name, out_indices=None)
    num_stages, image = whole.num_stages, torch.randn(1, 3, 64, 72)
    channels = dict(zip(whole.out_indices, whole.feature_channels, strict=True))
    variants = {i: (i,) for i in range(num_stages)} | {-1: (num_stages - 1,)}
    variants |= {pair: pair for pair in ((0, num_stages - 1), (num_stages - 2, num_stages - 1)) if num_stages > 1}
    for given, expected in variants.items():
        model = build(name, out_indices=list(given) if isinstance(given, tuple) else given).eval()
        assert model.out_indices == expected
        norms = {key for key, _ in model.named_children() if key.startswith("norm") and key != "norm"}
        assert norms in (set(), {f"norm{i}" for i in expected})
        if given in (0, -1, (0, num_stages - 1)):
            with torch.no_grad():
                assert [m.shape[1] for m in model(image)] == [channels[i] for i in expected]
    for wrong in ((), num_stages, -num_stages - 1, (0, num_stages), "0", (0.5,), True):
        with pytest.raises((ValueError, TypeError), match="out_indices"):
            build(name, out_indices=wrong)


@pytest.mark.parametrize("name", CASES)
def test_frozen_stages(name):
    """Their parameters have no gradient, they are in eval mode, and a step changes neither parameters nor statistics."""
    for frozen in range(build(name).num_stages + 1):
        model = build(name, frozen_stages=frozen)
        model.eval().train()
        parts = [part for stage in range(frozen + 1) for part in model.stage_modules(stage)]
        assert not any(module.training for part in parts for module in part.modules())
        assert not any(p.requires_grad for part in parts for p in part.parameters())
        if not any(p.requires_grad for p in model.parameters()):
            assert frozen == model.num_stages
            continue
        assert model.training
        before = [{key: t.clone() for key, t in part.state_dict().items()} for part in parts]
        step(model)
        assert all(p.grad is None for part in parts for p in part.parameters())
        for part, state in zip(parts, before, strict=True):
            assert all(torch.equal(t, state[key]) for key, t in part.state_dict().items())


@pytest.mark.parametrize("name", CASES)
def test_norm_eval(name):
    """Batch norms keep their statistics, and learn; without the option those that are not frozen update them."""
    for norm_eval, frozen in ((True, -1), (True, 0), (False, -1)):
        model = build(name, norm_eval=norm_eval, frozen_stages=frozen).train()
        norms = batch_norms(model)
        assert all(norm.training is not norm_eval for norm in norms.values())
        assert frozen == 0 or all(p.requires_grad for norm in norms.values() for p in norm.parameters())
        before = {key: norm.running_var.clone() for key, norm in norms.items()}
        step(model)
        assert all(torch.equal(norm.running_var, before[key]) is norm_eval for key, norm in norms.items())


@pytest.mark.parametrize("name", CASES)
def test_structure(name):
    """As many blocks as the arch says, and recomputation in every stage."""
    model = build(name, with_cp=True)
    assert all(stage.with_cp for stage in model.stages)
    assert len(model.stages) == model.num_stages
    depths = model.arch.get("depths") or (1,) * model.arch.get("depth", 0)
    for stage, depth in zip(model.stages, depths, strict=False):
        assert len(stage.blocks) + (stage.downsample is not None) >= depth  # MViTv2's first block downsamples


@pytest.mark.parametrize("name", CASES)
def test_checkpoints(name, tmp_path):
    """MMEngine's functions save and load them strictly; ``init_cfg`` reads the same file."""
    path, image = str(tmp_path / "weights.pth"), torch.randn(1, 3, 64, 72)
    model = build(name).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.02 * torch.randn_like(p))
        expected = model(image)
        save_checkpoint({"state_dict": model.state_dict()}, path)
        loaded = build(name).eval()
        load_checkpoint(loaded, path, strict=True)
        initialised = build(name, init_cfg=dict(type="Pretrained", checkpoint=path)).eval()
        initialised.init_weights()
        for other in (loaded, initialised):
            assert all(map(torch.equal, other(image), expected))


@pytest.mark.parametrize("name", CASES)
def test_wrong_arguments(name):
    with pytest.raises(TypeError, match="pretrained=0"):  # the libraries' first releases had it
        build(name, pretrained=0)
    for init_cfg in (0, "weights.pth"):
        with pytest.raises(TypeError, match=f"init_cfg={init_cfg!r}"):
            build(name, init_cfg=init_cfg)
    with pytest.raises(ValueError, match=r"image_size=\(64, 64, 64, 64\)"):
        build(name, image_size=(64, 64, 64, 64))
    arch = build(name).arch
    for key in arch:
        with pytest.raises(ValueError, match=key):
            build(name, arch={other: value for other, value in arch.items() if other != key})
