"""A shipped video config, narrowed, is trained, tested and used for predictions."""

import cv2
import pytest
from mmengine.config import Config
from PIL import Image

from mmlisa import config_path
from mmlisa.inference.pictures import predict_pictures
from mmlisa.inference.predictor import Predictor
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner
from mmlisa.video.reading import count_frames, read_frames

CONFIG = "classifier_lisanet_i_60e_something_v2.py"
ARCH = dict(base="isotropic", depths=(1,), channels=(16,), num_heads=(2,), position=None)


@pytest.fixture(scope="module")
def trained(clips, tmp_path_factory) -> tuple[Config, str]:
    """The config with a narrow backbone on four videos, and its checkpoint after one epoch of two iterations."""
    work_dir = tmp_path_factory.mktemp("video")
    cfg = load_config(config_path(CONFIG), work_dir=str(work_dir), options={})
    cfg.model.backbone.update(arch=ARCH, image_size=(4, 32, 32))
    cfg.model.head.update(in_channels=16, num_classes=2)
    cfg.model.data_preprocessor.num_classes = 2
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        loader.update(batch_size=2, num_workers=0, persistent_workers=False)
        loader.dataset.update(data_root=str(clips), metainfo=dict(classes=("back", "forth")))
        load, per_frame, pack = (step for step in loader.dataset.pipeline if "Clips" in step.type or "Per" in step.type)
        load.length = 4
        per_frame.transforms = [dict(type="Resize", scale=(32, 32))]
        loader.dataset.pipeline = [load, per_frame, pack]
    cfg.train_cfg.max_epochs = 1
    cfg.param_scheduler = []
    cfg.val_evaluator = cfg.test_evaluator = dict(type="Accuracy", topk=(1,))
    runner = build_runner(cfg, 0.5)
    runner.train()
    assert "accuracy/top1" in runner.test()
    return cfg, str(work_dir / "epoch_1.pth")


def test_prediction_on_a_file_and_on_a_folder_of_its_frames(trained, clips, tmp_path):
    source, frames = clips / "1.mp4", tmp_path / "frames.of.it"
    frames.mkdir()
    for number, frame in read_frames(source, range(count_frames(source))).items():
        cv2.imwrite(str(frames / f"{number:03}.png"), frame)
    cfg, checkpoint = trained
    file, folder = predict_pictures(Predictor(cfg, checkpoint), [str(source), str(frames)], tmp_path / "out", 0.3)
    assert folder.result == file.result
    assert file.result["scores"][0]["category"] in ("back", "forth")
    with Image.open(file.target) as picture:  # four frames of 32 pixels, four times as large, with gaps of 2
        assert picture.width >= 4 * 128 + 3 * 2
