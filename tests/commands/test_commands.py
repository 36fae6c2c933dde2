"""Every command once, in this process, on a few small demo images."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import cv2
import pytest
import torch
from mmengine.config import Config

from mmlisa import cli, config_path
from mmlisa import export as exporting
from mmlisa.checkpoints import load_weights
from mmlisa.commands import train
from mmlisa.datasets.demo import make_demo
from mmlisa.inference.load import DEMO, DEMO_CONFIG, load
from mmlisa.models.backbones import DINOv2
from mmlisa.training.config import build_model, load_config

CONFIGS = {name: f"{name}_hylisanet_demo.py" for name in ("mask_rcnn", "semantic_fpn", "classifier")}
# One iteration at 64 pixels.
SCALES = [
    f"{split}_dataloader.dataset.pipeline.{i}.scale=(64,64)" for split, i in (("train", 2), ("val", 1), ("test", 1))
]
CROPS = ["train_dataloader.dataset.pipeline.3.crop_size=(64,64)", "model.data_preprocessor.size=(64,64)"]
SMALL = {
    "mask_rcnn": [*SCALES, "model.test_cfg.rcnn.score_thr=0", "model.test_cfg.rcnn.max_per_img=5"],  # finds something
    "semantic_fpn": [*SCALES, *CROPS],
    "classifier": [],
}
ONE_ITERATION = ["train_cfg.max_iters=1", "train_cfg.val_interval=1", "train_dataloader.batch_size=2"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    return make_demo(tmp_path_factory.mktemp("data") / "demo", num_images={"train": 6, "val": 2})


@pytest.fixture
def mmlisa(monkeypatch, tmp_path):
    """Run ``mmlisa COMMAND …`` in an empty folder and return the exit status."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> int:
        try:
            cli.main([str(word) for word in words])
        except SystemExit as end:
            return end.code
        return 0

    return run


def data(root: Path) -> list[str]:
    return ["--cfg-options", *(f"{split}_dataloader.dataset.data_root={root}/" for split in ("train", "val", "test"))]


@pytest.mark.parametrize("kind", CONFIGS)
def test_train_test_infer(kind, demo, mmlisa, tmp_path, capsys):
    # MMEngine's visualizers are global, by the name of the experiment.
    options = [*data(demo), *SMALL[kind], *ONE_ITERATION, f"experiment_name={kind}"]
    if kind == "mask_rcnn":
        options += [f"{split}_evaluator.ann_file={demo}/annotations/instances_val.json" for split in ("val", "test")]
    amp = [] if kind == "classifier" else ["--amp"]
    assert mmlisa("train", CONFIGS[kind], "--work-dir", "run", *amp, *options) == 0
    (*_, test, infer) = capsys.readouterr().out.splitlines()
    config, checkpoint = test.split()[2:]
    assert config == f"run/{CONFIGS[kind]}"
    assert (tmp_path / checkpoint).is_file()
    assert infer == f"  mmlisa infer {config} {checkpoint} IMAGE …"
    words = ["test", config, checkpoint, *amp, "--out", "out.pkl", "--cfg-options", f"experiment_name=tested_{kind}"]
    assert mmlisa(*words) == 0
    assert ("best F1" in "".join(capsys.readouterr())) == (kind == "mask_rcnn")
    assert (tmp_path / "out.pkl").is_file()
    assert mmlisa("visualize", "run", "--out-dir", "curves") == 0
    assert (tmp_path / "curves" / "curves.png").is_file()
    (log,) = tmp_path.glob("run/test/*/2*.json")
    assert any(name in log.read_text() for name in ("coco/segm_mAP", "mIoU", "accuracy/top1"))
    image = next(demo.glob("val/*.jpg"))
    assert mmlisa("infer", config, checkpoint, image, *amp, "--out-dir", "pictures", "--json", "found.json") == 0
    assert (tmp_path / "pictures" / f"{image.stem}.png").is_file()
    (entry,) = json.loads((tmp_path / "found.json").read_text())
    assert entry.keys() - {"source", "picture", "height", "width"} <= {"instances", "segments", "scores"}


@pytest.mark.nightly
def test_bfloat16_costs_the_shipped_model_no_accuracy(mmlisa, tmp_path):
    root = make_demo(tmp_path / "demo", num_images={"train": 1, "val": 200})
    found = []
    for amp in ([], ["--amp"]):
        folder = tmp_path / f"test{len(amp)}"
        options = [
            *data(root),
            f"test_evaluator.ann_file={root}/annotations/instances_val.json",
            f"experiment_name={folder}",
        ]
        assert mmlisa("test", DEMO_CONFIG, DEMO / "model.pth", "--work-dir", folder, *amp, *options) == 0
        (log,) = folder.glob("*/2*.json")
        found.append({name: value for name, value in json.loads(log.read_text()).items() if name.startswith("coco/")})
    assert found[0] != found[1]
    for kind in ("bbox", "segm"):
        assert found[1][f"coco/{kind}_mAP"] == pytest.approx(found[0][f"coco/{kind}_mAP"], abs=0.003)


def test_infer_exits_with_1_if_an_image_is_damaged(mmlisa, tmp_path):
    (tmp_path / "cut.jpg").write_bytes(b"")
    assert mmlisa("infer", CONFIGS["classifier"], save(tmp_path), "cut.jpg") == 1


def save(folder: Path) -> Path:
    """Save a checkpoint of the demo classifier with random weights."""
    model = build_model(load_config(CONFIGS["classifier"]))
    torch.save({"state_dict": model.state_dict()}, folder / "random.pth")
    return folder / "random.pth"


def test_export(mmlisa, tmp_path, monkeypatch, capsys):
    def write(module, out, size, **options):
        assert (tuple(size), options["dynamic"], module.task) == ((64, 64), False, "classification")
        out.write_text("exported")
        return {tuple(size): 1e-7}

    monkeypatch.setattr(exporting, "write", write)
    assert mmlisa("export", CONFIGS["classifier"], "none", "m.onnx", "--size", "64", "64") == 0
    assert "64x64: differs from PyTorch by 1.0e-07" in capsys.readouterr().out


def test_a_detector_on_tiles_is_exported_and_counted(mmlisa, tmp_path, monkeypatch, capsys):
    base, written = config_path(CONFIGS["mask_rcnn"]), {}
    tiled = (
        f"_base_ = {base!r}\nmodel = dict(_delete_=True, type='mmlisa.TiledDetector', detector=_base_.model, tile=96)"
    )
    (tmp_path / "tiled.py").write_text(tiled)

    def write(module, out, *_, **options):
        out.touch()
        written.update(options)
        return {}

    monkeypatch.setattr(exporting, "write", write)
    assert mmlisa("export", "tiled.py", "none", "m.onnx") == 0
    assert (written["metadata"]["mmlisa_tile"], written["metadata"]["mmlisa_overlap"]) == ("96", "0.2")
    assert [mmlisa("flops", config, "--size", 96, 96) for config in ("tiled.py", base)] == [0, 0]
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == lines[-8:-5], "those of the detector inside"


@pytest.mark.parametrize(
    "words",
    [["m.pb"], ["m.onnx", "--raw", "--uint8"], ["m.onnx", "--size", "8", "48", "48", "--dynamic"]],
)
def test_exports_that_are_refused(words, mmlisa, tmp_path):
    assert mmlisa("export", CONFIGS["classifier"], "none", *words) == 2
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["mask_rcnn", "classifier"])
def test_check_data_counts_and_draws(kind, demo, mmlisa, tmp_path, capsys):
    assert mmlisa("check-data", CONFIGS[kind], "--draw", "3", "--out-dir", "drawn", *data(demo)) == 0
    printed = capsys.readouterr().out
    assert printed.count(" samples\n") == 2
    if kind == "mask_rcnn":
        annotations = json.loads((demo / "annotations" / "instances_train.json").read_text())["annotations"]
        count = sum(each["category_id"] == 1 and not each["iscrowd"] for each in annotations)
        assert re.search(rf"^train: .*\bcat {count}\b", printed, re.MULTILINE)
    for split in ("train", "val"):
        sheet = cv2.imread(str(tmp_path / "drawn" / f"{split}.png"))
        assert sheet.shape[1] == 720
        assert sheet[:360, :360].std() > 10
    assert (cv2.imread(str(tmp_path / "drawn" / "train.png"))[360:, 360:] == 255).all()  # three of four cells


def test_boxes_are_drawn_where_the_objects_are(demo, mmlisa, monkeypatch):
    """The test pipeline resizes images before it loads boxes, which are those of the file."""
    seen = []
    monkeypatch.setattr(
        "mmlisa.visualization.overlays.draw_truth", lambda image, sample, *_: seen.append((image, sample)) or image
    )
    options = ["val_dataloader.dataset.pipeline.1.scale=(320,320)"]
    mmlisa("check-data", CONFIGS["mask_rcnn"], "--draw", "2", "--split", "val", *data(demo), *options)
    assert len(seen) == 2
    for picture, sample in seen:
        assert picture.shape[:2] == sample.ori_shape != sample.img_shape


def test_convert(mmlisa, tmp_path):
    import timm

    torch.save(timm.create_model("caformer_s18").state_dict(), tmp_path / "caformer.pth")
    assert mmlisa("convert", "caformer.pth", "converted.pth") == 0
    assert (tmp_path / "converted.pth").is_file()


def test_adapt(demo, mmlisa, tmp_path, capsys):
    """The checkpoint starts a backbone with the student's attention."""
    arch = dict(base="small", depth=2, channels=48, num_heads=2, image_size=112)
    torch.save(DINOv2(arch).state_dict(), tmp_path / "teacher.pth")
    Path("config.py").write_text(f"model = dict(backbone=dict(type='mmlisa.DINOv2', arch={arch}, out_indices=(0, 1)))")
    words = ["adapt", "config.py", demo / "cls", "--weights", "teacher.pth", "--size", "56", "--iters", "2"]
    attention = "dict(type='FocusedLinearAttention', kernel_size=3)"
    assert mmlisa(*words, "--attention", attention, "--work-dir", "run") == 0
    assert "mmlisa train CONFIG --pretrained run/iter_2.pth" in capsys.readouterr().out
    weights = dict(type="mmlisa.PublishedWeights", source="run/iter_2.pth")
    backbone = DINOv2(arch, attention=dict(type="FocusedLinearAttention", kernel_size=3), init_cfg=weights)
    backbone.init_weights()
    trained = torch.load("run/iter_2.pth", weights_only=False)["state_dict"]
    for name, value in backbone.state_dict().items():
        torch.testing.assert_close(value, trained[f"backbone.{name}"])
    assert mmlisa(*words, "--attention", "dict(kernel_size=3)") == 2
    assert "--attention" in capsys.readouterr().err


def test_a_training_without_a_test_ends_with_its_report(tmp_path, capsys):
    model = dict(type="MaskRCNN", backbone=dict(type="ResNet"))
    cfg = Config(dict(model=model, train_dataloader=dict()), cfg_text="model = …", filename="own.py")
    info = SimpleNamespace(runtime_info=dict(last_ckpt=str(tmp_path / "iter_2.pth")))
    train.report(SimpleNamespace(cfg=cfg, message_hub=info, iter=2, log_dir="log", work_dir=str(tmp_path)))
    assert f"mmlisa infer {tmp_path / 'own.py'} {tmp_path / 'iter_2.pth'}" in capsys.readouterr().out


def test_visualize(demo, mmlisa, tmp_path):
    image = next(demo.glob("val/*.jpg"))
    model = ["--model", CONFIGS["classifier"]]
    words = [*model, *model, save(tmp_path), "model.backbone.image_size=64", "--size", "64", "64", "--matrices"]
    assert mmlisa("visualize", image, *words, "--out-dir", "drawn") == 0
    assert {path.name for path in (tmp_path / "drawn").iterdir()} == {"kernels.png", "matrices.png"}


def test_demo_data(mmlisa, tmp_path):
    assert mmlisa("demo-data", "--root", "demo", "--train-images", "1", "--val-images", "1") == 0
    assert len(list(tmp_path.glob("demo/train/*.jpg"))) == 1


OBJECTS = {
    "000000000006": ["motorcycle", "person", "quokka"],
    "000000000008": ["coin", "flower", "motorcycle", "rocket"],
}


def test_demo_finds_and_draws_the_objects_of_its_samples(mmlisa, tmp_path, capsys):
    assert mmlisa("demo", "--out-dir", ".") == 0
    lines = capsys.readouterr().out.splitlines()[1:3]
    model = load("demo")
    for line, (name, objects) in zip(lines, OBJECTS.items(), strict=True):
        found = model.predict(DEMO / f"{name}.jpg")
        assert sorted(model.classes[label] for label in found.labels) == objects
        assert all(f"1 {each}" in line for each in objects)
        picture, drawing = cv2.imread(str(DEMO / f"{name}.jpg")), cv2.imread(str(tmp_path / f"{name}.png"))
        assert drawing.shape[0] == 3 * picture.shape[0]


def test_the_demos_checkpoint_fits_its_config():
    load_weights(build_model(load_config(DEMO_CONFIG)), DEMO / "model.pth")
