"""MILA, ViT³, H-ViT³ and PolaFormer from files in their authors' names, against the outputs of the authors' networks."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import timm
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from PIL import Image
from torch import Tensor

from helpers.golden_weights import image, outputs, state_dict
from helpers.layouts import make_coco_layout
from helpers.training import EPOCH, ROOT, train
from mmlisa import config_path, create_model
from mmlisa.checkpoints import CheckpointError, load_checkpoint
from mmlisa.conversion import PublishedWeights, carry_over, convert_published
from mmlisa.conversion.addresses import PUBLISHED_FILES
from mmlisa.models import backbones
from mmlisa.models.backbones import MILA
from mmlisa.registry import MODELS
from research.paper_tables import build_on_meta

pytestmark = pytest.mark.slow

CLASSIFIERS = {"mila_t": "mila_t", "h_vit3_t": "h_vittt_t", "pola_swin_t": "pola_swin_t"}


def save(path: Path, content: dict) -> str:
    torch.save(content, path)
    return str(path)


@contextmanager
def one_line(kind: type[Exception], match: str) -> Iterator[None]:
    with pytest.raises(kind, match=match) as error:
        yield
    assert "\n" not in str(error.value)


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


@pytest.mark.parametrize("wrapping", ["plain", "detector"])
@pytest.mark.parametrize(("prefix", "size"), [("", (256, 320)), ("odd_", (250, 333))])
def test_maps_equal_the_authors(prefix, size, wrapping, tmp_path):
    state, expected = state_dict("mila_t_maps"), outputs("mila_t_maps")
    if wrapping == "detector":
        state = {f"backbone.{key}": tensor for key, tensor in state.items()}
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
    state = state_dict(golden)
    carried = carry_over(getattr(backbones, kind)(arch, **options), state)
    assert not carried.fresh
    assert set(carried.unused.values()) == left
    assert {key.rpartition(".")[2] for key in carried.dropped} <= {"rotations", "relative_position_index", "attn_mask"}
    assert len(carried.state_dict) + len(carried.dropped) + len(left) == len(state)


def in_the_authors_names(kind: str, arch: str, **options) -> dict[str, Tensor]:
    """Weights of a backbone whose names are changed the other way, for networks without a golden."""
    pairs = {
        "ViT3": (("stem.", "patch_embed."), ("stages.", "blocks."), ("blocks.0.", "")),
        "FLattenPVT": (),
    }
    state = {}
    for name, tensor in getattr(backbones, kind)(arch, **options).state_dict().items():
        new = name
        if kind == "FLattenPVT":
            parts = name.split(".")
            if parts[0] == "stem":
                new = "pos_embed1" if parts[1] == "position" else ".".join(["patch_embed1", *parts[1:]])
            elif parts[0] == "stages" and parts[2] == "downsample":
                stage = int(parts[1]) + 1
                new = f"pos_embed{stage}" if parts[3] == "position" else ".".join([f"patch_embed{stage}", *parts[3:]])
            elif parts[0] == "stages":
                new = ".".join([f"block{int(parts[1]) + 1}", *parts[3:]])
            if ".qkvg." in new:
                query, key, value, gate = torch.randn_like(tensor).chunk(4)
                state[new.replace("qkvg", "qg")] = torch.cat([query, gate])
                state[new.replace("qkvg", "kv")] = torch.cat([key, value])
                continue
        else:
            for ours, theirs in pairs[kind]:
                new = new.replace(ours, theirs, 1)
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
    checkpoint, _ = convert_published(save(tmp_path / "theirs.pth", {"model": state | head}))
    assert checkpoint["meta"]["backbone"]["type"] == f"mmlisa.{kind}"
    assert checkpoint["meta"]["backbone"]["arch"] == arch
    classifier = create_model(name, pretrained=str(tmp_path / "theirs.pth"))
    ours = classifier.state_dict()
    assert ours.keys() == checkpoint["state_dict"].keys()
    assert all(torch.equal(ours[key], tensor) for key, tensor in checkpoint["state_dict"].items())
    assert torch.equal(ours["head.fc.weight"], head["head.weight"])
    if kind == "FLattenPVT":
        query, key, value, gate = ours["backbone.stages.1.blocks.0.attn.qkvg.weight"].chunk(4)
        assert torch.equal(torch.cat([query, gate]), state["block2.0.attn.qg.weight"])
        assert torch.equal(torch.cat([key, value]), state["block2.0.attn.kv.weight"])


TOOL = ROOT / "tools" / "convert_checkpoint.py"


def test_tool_converts_a_classifier(tmp_path):
    """With its head, for mmpretrain's classifier, and for ``create_model``."""
    file = save(tmp_path / "theirs.pth", {"model": state_dict("h_vittt_t")})
    done = subprocess.run([sys.executable, TOOL, file, tmp_path / "ours.pth"], capture_output=True, text=True)
    assert "for HViT3 'tiny'" in done.stdout, done.stderr
    checkpoint = load_checkpoint(tmp_path / "ours.pth")
    assert checkpoint["meta"]["backbone"] == dict(type="mmlisa.HViT3", arch="tiny", out_indices=(3,), output_norm=False)
    classifier = create_model("h_vit3_t")
    classifier.load_state_dict(checkpoint["state_dict"])
    expected = create_model("h_vit3_t", pretrained=file).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in classifier.state_dict().items())


def test_detectors_keep_neck_and_heads(tmp_path):
    backbone = {f"backbone.{key}": tensor for key, tensor in state_dict("mila_t_maps").items()}
    heads = {"neck.fpn_convs.0.conv.weight": torch.ones(1), "roi_head.bbox_head.fc_cls.bias": torch.ones(2)}
    checkpoint, report = convert_published(save(tmp_path / "d.pth", {"meta": {}, "state_dict": backbone | heads}))
    assert checkpoint["meta"]["backbone"] == dict(type="mmlisa.MILA", arch="tiny")
    own = {f"backbone.{name}" for name in MILA("tiny").state_dict()}
    assert checkpoint["state_dict"].keys() == own | heads.keys()
    assert "with 2 tensors of heads" in report


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
def test_every_entry_of_a_detector_or_segmentor_has_its_place(config, golden, extra, tmp_path):
    """Necks and heads have the same names in the files of MMDetection 2 and 3 and of MMSegmentation 0 and 1."""
    model = build_on_meta(config)
    rest = {
        name: torch.zeros_like(t, device="cpu")
        for name, t in model.state_dict().items()
        if not name.startswith("backbone.")
    }
    theirs = {f"backbone.{name}": tensor for name, tensor in dense_names(golden).items()} | rest
    file = save(tmp_path / "theirs.pth", {"meta": {"CLASSES": ("a", "b"), "epoch": 12}, "state_dict": theirs, **extra})
    checkpoint, _ = convert_published(file)
    kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in checkpoint["state_dict"].items()} == kinds
    assert len(rest) > 30


def test_a_whole_detector_starts_from_the_authors(tmp_path):
    """Backbone, neck and heads, without a conversion first."""
    with DefaultScope.overwrite_default_scope("mmdet"):
        detector = MODELS.build(Config.fromfile(config_path("mask_rcnn_mila_t_1x_coco.py")).model)
    ours = detector.state_dict()
    rest = {name: torch.rand(tensor.shape) for name, tensor in ours.items() if not name.startswith("backbone.")}
    theirs = {f"backbone.{name}": tensor for name, tensor in dense_names("mila_t").items()} | rest
    PublishedWeights(save(tmp_path / "theirs.pth", {"meta": {}, "state_dict": theirs}))(detector)
    loaded = detector.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in rest.items())
    qk = "blocks.0.attn.qk.weight"
    assert torch.equal(loaded[f"backbone.stages.1.{qk}"], theirs[f"backbone.layers.1.{qk}"])


def test_a_detector_of_the_authors_is_trained_tested_and_exported(tmp_path):
    """With the command lines of docs/newer.md and docs/export.md, up to the detections of the exported file in an image."""
    with DefaultScope.overwrite_default_scope("mmdet"):
        detector = MODELS.build(Config.fromfile(config_path("mask_rcnn_mila_t_1x_coco.py")).model)
    detector.init_weights()
    rest = {name: tensor for name, tensor in detector.state_dict().items() if not name.startswith("backbone.")}
    theirs = {f"backbone.{name}": tensor for name, tensor in dense_names("mila_t").items()} | rest
    save(tmp_path / "theirs.pth", {"meta": {"CLASSES": ("person",), "epoch": 12}, "state_dict": theirs})
    data, config = make_coco_layout(tmp_path / "coco", num_images=3, side=160), "mask_rcnn_mila_t_1x_coco.py"
    work, small = tmp_path / "work", ["model.test_cfg.rcnn.score_thr=0", "model.test_cfg.rcnn.max_per_img=5"]
    small += [f"{split}_dataloader.dataset.pipeline.1.scale=(160,160)" for split in ("val", "test")]
    resizes = ("0.0", "1.0", "1.2")  # of the two ways in which a training image is resized
    crops = [f"train_dataloader.dataset.pipeline.3.transforms.{i}.scales=[(160,160)]" for i in resizes]

    def run(tool: str, *words: object) -> str:
        command = [sys.executable, ROOT / "tools" / f"{tool}.py", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("convert_checkpoint", "theirs.pth", "ours.pth")
    done = train(config, data, work, *EPOCH, *small, *crops, f"load_from={tmp_path / 'ours.pth'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "545 of 545 entries match" in done.stdout + done.stderr
    options = ["--cfg-options", f"test_dataloader.dataset.data_root={data}/", "test_dataloader.num_workers=0"]
    options += ["test_dataloader.persistent_workers=False", *small]
    annotations = f"test_evaluator.ann_file={data}/annotations/instances_val2017.json"
    run("test", config, work / "epoch_1.pth", "--work-dir", tmp_path / "test", *options, annotations)
    printed = run("export", config, work / "epoch_1.pth", "mila.onnx", "--size", "160", "160", *options)
    assert "160x160: differs from PyTorch by" in printed
    picture = Image.open(data / "val2017" / "000000000001.jpg").crop((0, 0, 100, 100))
    picture.save(tmp_path / "square.png")
    run("infer", "mila.onnx", "square.png", "--score-thr", "0", "--json", "found.json")
    (found,) = json.loads((tmp_path / "found.json").read_text())
    assert len(found["instances"]) == 5


def test_averaged_weights(tmp_path):
    state = state_dict("mila_t")
    averaged = {key: tensor + 1 for key, tensor in state.items()}
    file = save(tmp_path / "ema.pth", {"model": state, "state_dict_ema": averaged})
    for ema in (False, True):
        backbone = MILA("tiny")
        PublishedWeights(file, ema=ema)(backbone)
        assert torch.equal(backbone.stages[0].blocks[0].attn.qk.weight, state["layers.0.blocks.0.attn.qk.weight"] + ema)
    with one_line(ValueError, r"no averaged weights state_dict_ema.*holds \['model'\]"):
        PublishedWeights(save(tmp_path / "plain.pth", {"model": state}), ema=True)(MILA("tiny"))


def test_classification_norms_do_not_become_those_of_the_maps(tmp_path):
    """As the authors' detectors start: the norms of the maps are fresh, whatever the classifier's norm is."""
    for name, golden in (("mila_t", "mila_t"), ("h_vit3_t", "h_vittt_t")):
        file = save(tmp_path / "theirs.pth", {"model": state_dict(golden)})
        model = create_model(name, features_only=True, pretrained=file)
        assert torch.equal(model.model.backbone.norm3.weight, torch.ones(512))
        assert not torch.equal(model.model.backbone.stages[3].blocks[0].norm1.weight, torch.ones(512))


def test_wrong_files(tmp_path):
    mila = save(tmp_path / "mila.pth", {"model": state_dict("mila_t")})
    with one_line(ValueError, "MILA weights have no place in HViT3; they fit MILA"):
        create_model("h_vit3_t", pretrained=mila)
    with one_line(ValueError, "another size than MILA: 18 of its blocks are not in the file"):
        create_model("mila_s", pretrained=mila)
    small = {name: tensor for name, tensor in state_dict("mila_t").items() if not name.startswith("layers.2.blocks.7.")}
    small |= {name.replace("layers.3.blocks.0.", "layers.3.blocks.9."): t for name, t in small.items()}
    with one_line(ValueError, r"another size.*1 blocks of the file have no place.*blocks\.9"):
        create_model("mila_t", pretrained=save(tmp_path / "other.pth", {"model": small}))
    content = Path(mila).read_bytes()
    (tmp_path / "cut.pth").write_bytes(content[: len(content) // 2])
    with one_line(CheckpointError, r"cut\.pth"):
        create_model("mila_t", pretrained=str(tmp_path / "cut.pth"))
    swin = timm.create_model("swin_tiny_patch4_window7_224").state_dict()
    with one_line(ValueError, "Swin weights have no place in MILA; they fit FLattenSwin"):
        create_model("mila_t", pretrained=save(tmp_path / "swin.pth", swin))
    with one_line(FileNotFoundError, r"nowhere\.pth"):
        create_model("mila_t", pretrained=str(tmp_path / "nowhere.pth"))


def test_plain_swin_of_mmdet(tmp_path):
    swin = MODELS.build(dict(type="mmdet.SwinTransformer")).state_dict()
    file = save(tmp_path / "mmdet.pth", {"state_dict": {f"backbone.{name}": tensor for name, tensor in swin.items()}})
    with one_line(ValueError, "Swin, official names weights have no place in MILA; they fit FLattenSwin"):
        create_model("mila_t", pretrained=file)
    with one_line(ValueError, "Swin, official names weights have no place in MILA"):
        PublishedWeights(file)(MILA("tiny"))


def test_a_missing_file_is_named_with_its_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = r"MILA-T: download https://cloud\.tsinghua\.edu\.cn/f/7a19712877cb4242889c/\?dl=1 .* save it as data/MLLA_T\.pth"
    with one_line(FileNotFoundError, message):
        create_model("mila_t", pretrained="data/MLLA_T.pth")

    def offline(url, timeout=None):
        raise URLError("no route to host")

    monkeypatch.setattr("mmlisa.checkpoints.download.urlopen", offline)
    (file,) = (file for file in PUBLISHED_FILES if file.name == "MLLA_T.pth")
    with one_line(ConnectionError, r"no route to host.*" + message):
        PublishedWeights(file.address)(MILA("tiny"))


def test_every_published_file_has_a_network_and_an_address_of_its_own():
    files = {file.name for file in PUBLISHED_FILES}
    assert len(files) == len({file.address for file in PUBLISHED_FILES}) == len(PUBLISHED_FILES) == 24
    for name in files:
        if name.startswith(("mask_rcnn", "upernet")):
            assert config_path(name.replace(".pth", ".py"))
