"""Samples of the shipped video configs; one of them, narrowed, is trained, tested and used for a prediction."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope
from PIL import Image

from helpers.numbered_frames import numbered_frames, write_video
from mmlisa import config_path
from mmlisa.inference.pictures import predict_pictures
from mmlisa.inference.predictor import Predictor
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """A folder with four videos of 16 numbered frames of two classes, forwards and backwards, as train.txt and val.txt."""
    root = tmp_path_factory.mktemp("clips")
    frames = numbered_frames(16)
    for number in range(4):
        write_video(root / f"{number}.mp4", frames if number % 2 else frames[::-1])
    for split in ("train", "val"):
        (root / f"{split}.txt").write_text("".join(f"{number}.mp4 16 {number % 2}\n" for number in range(4)))
    return root


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("classifier_hylisanet_s_110e_kinetics400.py", (2, 3, 16, 224, 224), (4, 3, 16, 224, 224)),
        ("classifier_lisanet_i_60e_something_v2.py", (1, 3, 8, 224, 224), (1, 3, 8, 224, 224)),
    ],
)
def test_samples(clips, name, train, test):
    cfg = Config.fromfile(config_path(name))
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        for loader, shape in ((cfg.train_dataloader, train), (cfg.val_dataloader, test)):
            loader.dataset.data_root = str(clips)
            dataset = DATASETS.build(loader.dataset)
            assert len(dataset) == 4
            sample = dataset[3]
            assert sample["inputs"].shape == shape
            assert sample["inputs"].dtype == torch.uint8
            assert 0 <= sample["data_samples"].gt_label < 2


def test_training_test_and_prediction(clips, tmp_path):
    """With a narrow backbone on four videos, for one epoch of two iterations."""
    arch = dict(base="isotropic", depths=(1,), channels=(16,), num_heads=(2,), position=None)
    cfg = load_config(config_path("classifier_lisanet_i_60e_something_v2.py"), work_dir=str(tmp_path))
    cfg.model.backbone.update(arch=arch, image_size=(4, 32, 32))
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
    runner = build_runner(cfg)
    runner.train()
    assert "accuracy/top1" in runner.test()
    (found,), _ = predict_pictures(Predictor(cfg, str(tmp_path / "epoch_1.pth")), [str(clips / "1.mp4")], tmp_path, 0.3)
    assert found["scores"][0]["category"] in ("back", "forth")
    with Image.open(found["picture"]) as picture:  # four frames in a row
        assert picture.width > 3 * picture.height
