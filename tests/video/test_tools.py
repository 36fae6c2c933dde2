"""Training, resuming, testing, drawing and two processes, on a few demo clips."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import pytest
import torch
from mmengine.config import Config
from PIL import Image

from mmlisa import config_path
from mmlisa.deploy.inference import Predictor, predict_pictures
from mmlisa.training.config import load_config, set_show_dir
from mmlisa.training.runner import build_runner, set_resume
from mmlisa.video.demo import CLASSES
from mmlisa.video.reading import count_frames, read_frames

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CONFIG = "video_hylisanet_demo.py"


def config(demo: Path, work_dir: Path) -> Config:
    # MMEngine's visualizers are global, by name; each run logs into a folder of its own.
    options = {**short(demo), "visualizer.name": str(work_dir)}
    return load_config(config_path(CONFIG), work_dir=str(work_dir), options=options)


def short(demo: Path) -> dict[str, object]:
    return {
        **{f"{split}_dataloader.dataset.data_root": str(demo) for split in ("train", "val", "test")},
        "train_dataloader.batch_size": 4,
        "train_cfg.max_iters": 4,
        "train_cfg.val_interval": 4,
        "default_hooks.checkpoint.interval": 2,
        "default_hooks.logger.interval": 1,
        "log_processor.window_size": 1,
    }


def entries(work_dir: Path) -> list[dict]:
    """All that was logged, the last log's last."""
    logs = sorted(path for path in work_dir.glob("*/vis_data/2*.json"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def losses(work_dir: Path) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in entries(work_dir) if "loss" in entry}


@pytest.fixture(scope="module")
def trained(demo, tmp_path_factory):
    work_dir = tmp_path_factory.mktemp("video") / "whole"
    build_runner(config(demo, work_dir), 0.5).train()
    return work_dir


def test_a_resumed_training_repeats_the_whole_one(trained, demo, tmp_path):
    shutil.copy(trained / "iter_2.pth", tmp_path)
    cfg = config(demo, tmp_path)
    set_resume(cfg, str(tmp_path / "iter_2.pth"))
    build_runner(cfg, 0.5).train()
    whole = losses(trained)
    assert list(whole) == [1, 2, 3, 4]
    assert losses(tmp_path) == {3: whole[3], 4: whole[4]}
    assert entries(tmp_path)[-1]["accuracy/top1"] == entries(trained)[-1]["accuracy/top1"]


def test_testing_and_its_pictures(trained, demo, tmp_path):
    cfg = config(demo, tmp_path)
    cfg.load_from = str(trained / "iter_4.pth")
    set_show_dir(cfg, str(tmp_path / "pictures"))
    metrics = build_runner(cfg, 0.9).test()
    assert metrics["accuracy/top1"] == entries(trained)[-1]["accuracy/top1"]
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 8


def test_the_prediction_on_a_video_of_its_own(trained, demo, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"broken")
    videos = [str(demo / "val" / "grow_000.mp4"), str(tmp_path / "broken.mp4")]
    cfg = config(demo, tmp_path)
    drawn, broken = predict_pictures(Predictor(cfg, str(trained / "iter_4.pth")), videos, tmp_path / "out")
    assert drawn.summary.split()[0] in CLASSES
    assert [drawn.result["scores"][0]["category"]] == drawn.summary.split()[:1]
    with Image.open(drawn.target) as picture:  # eight frames of 48 pixels, three times as large, with gaps of 2
        assert picture.width == 8 * 144 + 7 * 2
        assert 144 < picture.height < 200
    assert broken.target is None
    assert "broken.mp4 cannot be opened" in broken.summary


def test_a_folder_of_frames_is_a_video(trained, demo, tmp_path):
    source = demo / "val" / "grow_000.mp4"
    frames = tmp_path / "frames.of.it"
    frames.mkdir()
    for number, frame in read_frames(source, range(count_frames(source))).items():
        cv2.imwrite(str(frames / f"{number:03}.png"), frame)
    model = Predictor(config(demo, tmp_path), str(trained / "iter_4.pth"))
    file, folder = predict_pictures(model, [str(source), str(frames)], tmp_path / "out")
    assert folder.result == file.result
    assert folder.target.name == "frames.of.it.png"


def test_two_processes(demo, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=29541"]
    command += ["tools/train.py", f"configs/{CONFIG}", "--launcher", "pytorch", "--work-dir", str(tmp_path)]
    options = {**short(demo), "train_cfg.max_iters": 2, "train_cfg.val_interval": 2}
    command += ["--cfg-options", *(f"{key}={value}" for key, value in options.items())]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(losses(tmp_path)) == [1, 2]
    assert "accuracy/top1" in entries(tmp_path)[-1]


def test_image_weights_become_video_weights(tmp_path):
    from mmlisa.models.backbones import LiSANet

    backbone = Config.fromfile(config_path(CONFIG)).model.backbone
    image = LiSANet(backbone.arch, image_size=48, out_indices=[-1]).state_dict()
    torch.save(
        {"state_dict": {f"backbone.{k}": v for k, v in image.items()} | {"head.fc.bias": torch.zeros(9)}},
        tmp_path / "image.pth",
    )
    command = [sys.executable, "tools/convert_checkpoint.py", str(tmp_path / "image.pth")]
    command += [str(tmp_path / "out" / "video.pth"), "--inflate", f"configs/{CONFIG}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    inflated = torch.load(tmp_path / "out" / "video.pth", weights_only=True)["state_dict"]
    assert len(inflated) == len(image)
    weight = inflated["backbone.stem.proj.weight"]
    assert weight.shape[2] == 3
    assert torch.equal(weight[:, :, 1], image["stem.proj.weight"])
    assert not weight[:, :, [0, 2]].any()
