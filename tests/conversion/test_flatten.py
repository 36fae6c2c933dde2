"""Official FLatten files, by the paper and their checkpoints' layout: every key of every model, and the official logits.

``goldens/official_flatten.keys.json`` holds the names and shapes of the authors' models, ``official_flatten.npz`` the logits of
the smallest one of each family, in fp64 with the weights of ``golden_weights.values`` and its image. They come from a second
implementation of the networks as plain functions of their state dicts, independent of the package: one head at a time, one
window at a time. The git history keeps it in tests/helpers/official_flatten.py, and the layouts in this file.
"""

from argparse import Namespace

import pytest
import torch
import torch.nn.functional as F

from helpers.golden_weights import filled, image, outputs, shapes
from helpers.networks import matched
from mmlisa.conversion import convert_published
from mmlisa.models import backbones

LAYOUTS = shapes("official_flatten")
# Millions of parameters of the official code; the authors' page prints 88.973 for Swin-B.
MILLIONS = {
    "FLattenSwin": {"tiny": 29.192, "small": 50.510, "base": 88.972, "base-384": 91.434},
    "FLattenPVT": {"tiny": 12.151, "small": 21.670, "medium": 37.242, "large": 50.649},
    "FLattenPVTv2": {"b0": 3.595, "b1": 12.931, "b2": 22.548, "b3": 38.274, "b4": 51.837},
    "FLattenCSwin": {"tiny": 21.202, "small": 35.452, "base": 74.867, "base-384": 78.369},
}
BUFFERS = ("relative_position_index", "attn_mask")


def parts(checkpoint):
    """The backbone's weights and the head's of a converted classifier."""
    state = checkpoint["state_dict"]
    backbone = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
    return backbone, {name: tensor for name, tensor in state.items() if not name.startswith("backbone.")}


@pytest.mark.parametrize(("host", "arch"), [(host, arch) for host, archs in MILLIONS.items() for arch in archs])
def test_every_key_of_every_model(host, arch):
    state = {key: torch.empty(shape, device="meta") for key, shape in LAYOUTS[f"{host} {arch}"].items()}
    count = sum(tensor.numel() for key, tensor in state.items() if not key.endswith(BUFFERS))
    assert round(count / 1e6, 3) == MILLIONS[host][arch]
    checkpoint, report = convert_published({"model": state}, head=True)
    assert dict(checkpoint["meta"]["backbone"]) == dict(type=f"mmlisa.{host}", arch=arch, out_indices=(3,))
    assert "start fresh" not in report
    backbone, head = parts(checkpoint)
    assert head.keys() == {"head.fc.weight", "head.fc.bias"}
    assert sum(tensor.numel() for tensor in (*backbone.values(), *head.values())) == count


@pytest.mark.parametrize("host", MILLIONS)
def test_converted_weights_give_the_official_logits(host, tmp_path):
    """Through a file with what the authors' training saves beside the weights."""
    arch = next(iter(MILLIONS[host]))
    state = filled(LAYOUTS[f"{host} {arch}"], torch.float64)
    averaged = {f"module.{name}": tensor for name, tensor in state.items()}
    other = {name: tensor + 1 for name, tensor in state.items()}
    torch.save({"model": other, "state_dict_ema": averaged, "args": Namespace(lr=1)}, tmp_path / "official.pth")
    checkpoint, _ = convert_published(str(tmp_path / "official.pth"), ema=True, head=True)
    weights, head = parts(checkpoint)
    backbone = getattr(backbones, host)(arch, out_indices=(3,)).double().eval()
    backbone.load_state_dict(weights)
    with torch.no_grad():
        features = backbone(image(224, 224).double())[-1].mean((2, 3))
        logits = F.linear(features, head["head.fc.weight"], head["head.fc.bias"])[0]
    expected = torch.from_numpy(outputs("official_flatten")[host.removeprefix("FLatten").lower()])
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)


def test_official_pvt_host_as_a_start():
    state = filled(LAYOUTS["FLattenPVT tiny"], torch.float64)
    state = {key: t for key, t in state.items() if not key.endswith(("scale", "encoding")) and ".dwc." not in key}
    state["cls_token"] = torch.zeros(1, 1, 512, dtype=torch.float64)
    state["pos_embed4"] = torch.cat([torch.zeros(1, 1, 512, dtype=torch.float64), state["pos_embed4"]], dim=1)
    state["block1.0.attn.sr.weight"], state["block1.0.attn.norm.weight"] = torch.zeros(64, 64, 8, 8), torch.zeros(64)
    found = matched(backbones.FLattenPVT("tiny", out_indices=(3,)), state)
    left = {*found.dropped, *found.unused.values()}
    assert left == {"cls_token", "block1.0.attn.sr.weight", "block1.0.attn.norm.weight", "head.weight", "head.bias"}
    assert torch.equal(found.state["stages.3.downsample.position"], state["pos_embed4"][:, 1:])
    assert len(found.fresh) == 8 * 4
