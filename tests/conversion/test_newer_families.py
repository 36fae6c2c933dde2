"""MILA, ViT³, H-ViT³ and PolaFormer from files in their authors' names, against the outputs of the authors' networks."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import Tensor

from helpers.golden_weights import image, outputs, state_dict
from helpers.networks import matched
from mmlisa import create_model
from mmlisa.conversion import PublishedWeights, convert_published
from mmlisa.models import backbones
from mmlisa.models.backbones import MILA
from research.paper_tables import build_on_meta

CLASSIFIERS = {"mila_t": "mila_t", "h_vit3_t": "h_vittt_t", "pola_swin_t": "pola_swin_t"}


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
    for i in range(4):
        assert relative(stages[i], expected[f"stage{i}"].reshape(1, -1)) < 1e-5
    # The weights are such that every part of the network is seen in the output.
    assert np.abs(expected["logits"]).max() > 1


@pytest.mark.parametrize(("prefix", "size", "wrapping"), [("", (256, 320), ""), ("odd_", (250, 333), "backbone.")])
def test_maps_equal_the_authors(prefix, size, wrapping, tmp_path):
    state, expected = state_dict("mila_t_maps"), outputs("mila_t_maps")
    state = {f"{wrapping}{key}": tensor for key, tensor in state.items()}
    file = save(tmp_path / "theirs.pth", {"meta": {}, "state_dict": state})
    with torch.no_grad():
        maps = create_model("mila_t", features_only=True, pretrained=file).eval()(image(*size))
    for i, one in enumerate(maps):
        height, width = one.shape[2:]
        assert one.shape == tuple(expected[f"{prefix}map{i}_shape"])
        for part, values in (
            ("mean", one.mean((2, 3))),
            ("corner", one[:, :, -1, -1]),
            ("inner", one[:, :, height // 3, width // 2]),
        ):
            assert relative(values, expected[f"{prefix}map{i}_{part}"].reshape(1, -1)) < 1e-5


@pytest.mark.parametrize(
    ("golden", "kind", "arch", "options", "left"),
    [
        ("mila_t", "MILA", "tiny", dict(out_indices=(3,), output_norm=False), {"head.weight", "head.bias"}),
        ("mila_t_maps", "MILA", "tiny", {}, set()),
        ("h_vittt_t", "HViT3", "tiny", dict(out_indices=(3,), output_norm=False), {"head.weight", "head.bias"}),
        ("pola_swin_t", "FLattenSwin", "pola-tiny", dict(out_indices=(3,)), {"head.weight", "head.bias"}),
    ],
)
def test_no_entry_is_left_over(golden, kind, arch, options, left):
    state = {name: tensor.to("meta") for name, tensor in state_dict(golden).items()}
    with torch.device("meta"):
        found = matched(getattr(backbones, kind)(arch, **options), state)
    assert not found.fresh
    assert set(found.unused.values()) == left
    assert {key.rpartition(".")[2] for key in found.dropped} <= {"rotations", "relative_position_index", "attn_mask"}
    assert len(found.state) + len(found.dropped) + len(left) == len(state)


def in_the_authors_names(kind: str, arch: str) -> dict[str, Tensor]:
    """Weights of a backbone whose names are changed the other way, for networks without a golden."""
    state = {}
    for name, tensor in getattr(backbones, kind)(arch).state_dict().items():
        parts = name.split(".")
        if kind == "ViT3":
            new = name.replace("stem.", "patch_embed.", 1).replace("stages.", "blocks.", 1).replace("blocks.0.", "", 1)
        elif parts[0] == "stem":
            new = "pos_embed1" if parts[1] == "position" else ".".join(["patch_embed1", *parts[1:]])
        elif parts[0] == "stages" and parts[2] == "downsample":
            stage = int(parts[1]) + 1
            new = f"pos_embed{stage}" if parts[3] == "position" else ".".join([f"patch_embed{stage}", *parts[3:]])
        else:
            new = ".".join([f"block{int(parts[1]) + 1}", *parts[3:]]) if parts[0] == "stages" else name
        if ".qkvg." in new:
            query, key, value, gate = torch.randn_like(tensor).chunk(4)
            state[new.replace("qkvg", "qg")] = torch.cat([query, gate])
            state[new.replace("qkvg", "kv")] = torch.cat([key, value])
        else:
            state[new] = torch.randn_like(tensor)
    return state


@pytest.mark.parametrize(
    ("kind", "arch", "entries", "name"),
    [("ViT3", "tiny", 208, "vit3_t"), ("FLattenPVT", "pola-tiny", 174, "pola_pvt_t")],
)
def test_plain_vit3_and_pola_pvt(kind, arch, entries, name, tmp_path):
    """As many entries as the authors' files have, beside the head; every one has its place."""
    state = in_the_authors_names(kind, arch)
    head = {"head.weight": torch.randn(1000, state["norm.weight"].numel()), "head.bias": torch.randn(1000)}
    assert len(state) == entries
    checkpoint, _ = convert_published({"model": state | head})
    assert checkpoint["meta"]["backbone"]["type"] == f"mmlisa.{kind}"
    assert checkpoint["meta"]["backbone"]["arch"] == arch
    ours = create_model(name, pretrained=save(tmp_path / "theirs.pth", {"model": state | head})).state_dict()
    assert ours.keys() == checkpoint["state_dict"].keys()
    assert all(torch.equal(ours[key], tensor) for key, tensor in checkpoint["state_dict"].items())
    assert torch.equal(ours["head.fc.weight"], head["head.weight"])
    if kind == "FLattenPVT":
        query, key, value, gate = ours["backbone.stages.1.blocks.0.attn.qkvg.weight"].chunk(4)
        assert torch.equal(torch.cat([query, gate]), state["block2.0.attn.qg.weight"])
        assert torch.equal(torch.cat([key, value]), state["block2.0.attn.kv.weight"])


def dense_names(golden: str) -> dict[str, Tensor]:
    """A classifier's weights as the dense networks' files name them: a norm for each map, in place of the classifier's."""
    state = {name: t for name, t in state_dict(golden).items() if not name.startswith(("norm.", "head."))}
    widths = [len(state[f"layers.{i}.blocks.0.norm1.weight"]) for i in range(4)]
    norms = {f"norm{i}.{kind}": torch.randn(width) for i, width in enumerate(widths) for kind in ("weight", "bias")}
    return {name.replace(".rope.", ".attn.rope."): tensor for name, tensor in state.items()} | norms


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
    state = state_dict("mila_t")
    mila = save(tmp_path / "mila.pth", {"model": state})
    with pytest.raises(ValueError, match="MILA weights have no place in HViT3; they fit MILA"):
        create_model("h_vit3_t", pretrained=mila)
    with pytest.raises(ValueError, match="another size than MILA: 18 of its blocks are not in the file"):
        create_model("mila_s", pretrained=mila)
    other = {name: tensor for name, tensor in state.items() if not name.startswith("layers.2.blocks.7.")}
    other |= {name.replace("layers.3.blocks.0.", "layers.3.blocks.9."): tensor for name, tensor in other.items()}
    with pytest.raises(ValueError, match=r"another size.*1 blocks of the file have no place.*blocks\.9"):
        create_model("mila_t", pretrained=save(tmp_path / "other.pth", {"model": other}))
    swin = timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1)).state_dict()
    with pytest.raises(ValueError, match="Swin weights have no place in MILA; they fit FLattenSwin"):
        PublishedWeights(save(tmp_path / "swin.pth", swin))(MILA("tiny"))
