"""Files in their authors' names: FLatten, MILA, ViT³, H-ViT³ and PolaFormer, against the outputs in ``helpers/goldens``.

FLatten's goldens follow the paper and the layout of its checkpoints: ``official_flatten.keys.json`` holds the names and shapes of
the authors' models, ``official_flatten.npz`` the logits of the smallest one of each family, in fp64. They come from a second
implementation of the networks as plain functions of their state dicts, independent of the package: one head at a time, one
window at a time. The git history keeps it in tests/helpers/official_flatten.py, the layouts in tests/conversion/test_flatten.py.
"""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.golden_weights import dense_names, filled, image, outputs, shapes, state_dict
from mmlisa import create_model
from mmlisa.conversion import convert_published, match
from mmlisa.models import backbones
from research.paper_tables import build_on_meta

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


def archs():
    for host, names in MILLIONS.items():
        for name in names:
            yield pytest.param(host, name, marks=pytest.mark.nightly if "base" in name else ())


@pytest.mark.parametrize(("host", "arch"), archs())
def test_every_key_of_every_model(host, arch):
    state = {key: torch.empty(shape, device="meta") for key, shape in LAYOUTS[f"{host} {arch}"].items()}
    count = sum(tensor.numel() for key, tensor in state.items() if not key.endswith(BUFFERS))
    assert round(count / 1e6, 3) == MILLIONS[host][arch]
    checkpoint, report = convert_published({"model": state}, head=True)
    with torch.device("meta"):
        assert checkpoint["meta"]["backbone"] == getattr(backbones, host)(arch).settings()
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
    found = match(state, backbones.FLattenPVT("tiny", out_indices=(3,)))
    assert found.unused.keys() == {
        "cls_token",
        "block1.0.attn.sr.weight",
        "block1.0.attn.norm.weight",
        "head.weight",
        "head.bias",
    }
    assert torch.equal(found.state["stages.3.downsample.position"], state["pos_embed4"][:, 1:])
    assert len(found.fresh) == 8 * 4


CLASSIFIERS = {"mila_t": "mila_t", "h_vit3_t": "h_vittt_t", "pola_swin_t": "pola_swin_t"}
CLASSIFIERS |= {"vit3_t": "vit3_t", "pola_pvt_t": "pola_pvt_t"}


def save(path: Path, content: dict) -> str:
    torch.save(content, path)
    return str(path)


def relative(actual: Tensor, expected: np.ndarray) -> float:
    """The largest error over the largest value."""
    expected = torch.from_numpy(expected).double()
    return ((actual.double() - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_equal_the_authors(name, tmp_path):
    golden = CLASSIFIERS[name]
    file = save(tmp_path / "theirs.pth", {"model": state_dict(golden), "optimizer": {}, "epoch": 299})
    classifier, expected = create_model(name, pretrained=file).eval(), outputs(golden)
    stages = {}
    for i, stage in enumerate(classifier.backbone.stages):
        stage.blocks[-1].register_forward_hook(lambda _, x, y, i=i: stages.update({i: y.mean(1)}))
    with torch.no_grad():
        logits = classifier(image(224, 224))
    assert relative(logits, expected["logits"].reshape(1, -1)) < 1e-5
    for i in range(4 if "stage0" in expected else 0):
        assert relative(stages[i], expected[f"stage{i}"].reshape(1, -1)) < 1e-5
    # The weights are such that every part of the network is seen in the output.
    assert np.abs(expected["logits"]).max() > 1


@pytest.mark.parametrize(("prefix", "size", "wrapping"), [("", (256, 320), ""), ("odd_", (250, 333), "backbone.")])
@pytest.mark.parametrize("name", ["mila_t", "h_vit3_t"])
def test_maps_equal_the_authors(name, prefix, size, wrapping, tmp_path):
    """Also where the image is not a multiple of 4, and the maps of three stages have odd sides."""
    golden = f"{CLASSIFIERS[name]}_maps"
    state, expected = state_dict(golden) if name == "mila_t" else dense_names("h_vittt_t"), outputs(golden)
    state = {f"{wrapping}{key}": tensor for key, tensor in state.items()}
    file = save(tmp_path / "theirs.pth", {"meta": {}, "state_dict": state})
    with torch.no_grad():
        maps = create_model(name, features_only=True, pretrained=file).eval()(image(*size))
    for i, one in enumerate(maps):
        height, width = one.shape[2:]
        assert one.shape == tuple(expected[f"{prefix}map{i}_shape"])
        for part, values in (
            ("mean", one.mean((2, 3))),
            ("corner", one[:, :, -1, -1]),
            ("inner", one[:, :, height // 3, width // 2]),
        ):
            assert relative(values, expected[f"{prefix}map{i}_{part}"].reshape(1, -1)) < 2e-5


@pytest.mark.parametrize(
    ("config", "golden", "extra"),
    [
        ("mask_rcnn_mila_t_1x_coco.py", "mila_t", {}),
        ("mask_rcnn_h_vit3_t_3x_coco.py", "h_vittt_t", {"message_hub": {"log_scalars": {}}, "optimizer": {}}),
        ("upernet_h_vit3_t_160k_ade20k.py", "h_vittt_t", {"message_hub": {}}),
    ],
)
def test_every_entry_of_a_detector_or_segmentor_has_its_place(config, golden, extra):
    """Necks and heads have the same names in the files of MMDetection 2 and 3 and of MMSegmentation 0 and 1."""
    model = build_on_meta(config)
    rest = {
        name: torch.zeros_like(tensor, device="cpu")
        for name, tensor in model.state_dict().items()
        if not name.startswith("backbone.")
    }
    theirs = {f"backbone.{name}": tensor for name, tensor in dense_names(golden).items()} | rest
    checkpoint, _ = convert_published({"meta": {"CLASSES": ("a", "b")}, "state_dict": theirs, **extra})
    kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in checkpoint["state_dict"].items()} == kinds
    assert len(rest) > 30


def test_classification_norms_do_not_become_those_of_the_maps(tmp_path):
    """As the authors' detectors start: the norms of the maps are fresh, whatever the classifier's norm is."""
    for name, golden in (("mila_t", "mila_t"), ("h_vit3_t", "h_vittt_t")):
        file = save(tmp_path / "theirs.pth", {"model": state_dict(golden)})
        model = create_model(name, features_only=True, pretrained=file)
        assert torch.equal(model.model.backbone.norm3.weight, torch.ones(512))
        assert not torch.equal(model.model.backbone.stages[3].blocks[0].norm1.weight, torch.ones(512))


def test_other_sizes_and_families_are_refused(tmp_path):
    mila = save(tmp_path / "mila.pth", {"model": state_dict("mila_t")})
    with pytest.raises(ValueError, match="no place in HViT3"):
        create_model("h_vit3_t", pretrained=mila)
    with pytest.raises(ValueError, match="another size than MILA"):
        create_model("mila_s", pretrained=mila)
    state = {key: torch.empty(shape, device="meta") for key, shape in LAYOUTS["FLattenSwin tiny"].items()}
    with pytest.raises(ValueError, match="another size than FLattenSwin"):
        convert_published({"model": state | {"norm.weight": torch.empty(5, device="meta")}}, head=True)
