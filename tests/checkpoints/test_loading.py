"""How well a checkpoint matches a model, the share below which it is refused, and weights of ``init_cfg``."""

import pytest
import torch
from timm.models import adapt_input_conv
from torch import nn

from mmlisa.checkpoints import CheckpointError, load_weights, match_report
from mmlisa.models.backbones import LiSANet

ARCH = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), num_heads=(1, 1, 1, 1))


@pytest.fixture
def save(tmp_path):
    def save_file(content) -> str:
        torch.save(content, tmp_path / "weights.pth")
        return str(tmp_path / "weights.pth")

    return save_file


def test_match_report_and_threshold(save):
    model, other = nn.Linear(2, 3), nn.Sequential(nn.Linear(2, 3))
    share, line = match_report(model, {**model.state_dict(), "bias": torch.ones(4), "extra.weight": torch.ones(1)})
    assert share == 0.5
    assert line == "1 of 2 entries match, 1 of another shape (bias), 1 not in the model (extra.weight)"
    before = model.weight.clone()
    with pytest.raises(CheckpointError, match=r"0 of 2 .*min_matched"):
        load_weights(model, save({"state_dict": other.state_dict()}))
    assert torch.equal(model.weight, before)
    state = {f"module.{name}": tensor.half() + 1 for name, tensor in model.state_dict().items()}
    load_weights(model, save({"model": {**state, "extra": torch.ones(1)}, "epoch": 3}))
    assert torch.equal(model.weight, (before.half() + 1).float())
    assert list(model.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize(
    "bias", [torch.tensor([1, 2, 3]), torch.tensor([1j, 2, 3]), torch.tensor([1, torch.nan, 1]), "text"]
)
def test_values_that_are_not_weights(save, bias):
    model = nn.Linear(2, 3)
    file = save({**model.state_dict(), "bias": bias})
    with pytest.raises(CheckpointError, match=r"weights\.pth: .*bias"):
        load_weights(model, file)


@pytest.mark.parametrize("prefix", ["backbone", "backbone."])
@pytest.mark.parametrize("wrapper", ["", "module.", "module._orig_mod."])
def test_pretrained_backbones_are_loaded_by_prefix(save, prefix, wrapper):
    """Of a detector, also below a parallel wrapper; ``backbone`` is not ``backbone2``. A second call changes nothing."""
    state = LiSANet(ARCH).state_dict()
    both = {f"{wrapper}{part}.{n}": t + i for i, part in enumerate(("backbone", "backbone2")) for n, t in state.items()}
    loaded = LiSANet(ARCH, init_cfg=dict(type="Pretrained", checkpoint=save({"state_dict": both}), prefix=prefix))
    loaded.init_weights()
    torch.testing.assert_close(loaded.state_dict(), state, rtol=0, atol=0)
    with torch.no_grad():
        loaded.norm0.bias.fill_(3)
    loaded.init_weights()
    assert (loaded.norm0.bias == 3).all()


@pytest.mark.parametrize("channels", [1, 4])
def test_weights_of_rgb_for_other_input_channels(save, channels):
    state = LiSANet(ARCH).state_dict()
    (stem,) = [name for name, tensor in state.items() if tensor.ndim == 4 and tensor.shape[1] == 3]
    cfg = dict(type="Pretrained", checkpoint=save({"state_dict": state}))
    loaded = LiSANet(ARCH, in_channels=channels, init_cfg=cfg)
    loaded.init_weights()
    torch.testing.assert_close(loaded.state_dict()[stem], adapt_input_conv(channels, state[stem]))


def test_a_third_of_a_backbone_is_refused(save):
    state = LiSANet(ARCH).state_dict()
    cfg = dict(type="Pretrained", checkpoint=save({"state_dict": dict(list(state.items())[: len(state) // 3])}))
    with pytest.raises(CheckpointError, match=rf"{len(state) // 3} of {len(state)} .*min_matched"):
        LiSANet(ARCH, init_cfg=cfg).init_weights()
    LiSANet(ARCH, init_cfg=dict(cfg, min_matched=0.3)).init_weights()


def test_a_forgotten_prefix_is_named(save):
    state = {f"backbone.{name}": tensor for name, tensor in LiSANet(ARCH).state_dict().items()}
    with pytest.raises(CheckpointError, match=r"0 of .*add prefix='backbone\.'"):
        LiSANet(ARCH, init_cfg=dict(type="Pretrained", checkpoint=save({"state_dict": state}))).init_weights()


class Stateful(nn.Linear):
    """Keeps a dict beside its weights, as layers of torchao and Transformer Engine do."""

    extra = None

    def get_extra_state(self):
        return {"scale": self.extra}

    def set_extra_state(self, state):
        self.extra = state["scale"]


def test_extra_states_of_modules_are_loaded(save):
    model, other = Stateful(2, 3), Stateful(2, 3)
    model.extra = 2.0
    assert match_report(model, {**model.state_dict(), "_extra_state": torch.ones(1)})[0] == pytest.approx(2 / 3)
    load_weights(other, save(model.state_dict()), min_matched=1)
    assert other.extra == 2.0
