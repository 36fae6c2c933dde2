"""The contact sheet shows training images as the pipeline leaves them."""

import numpy as np
import pytest

from figures.training_images import draw_training_images
from mmlisa import config_path
from mmlisa.datasets.demo import make_demo
from mmlisa.training.config import load_config
from mmlisa.video.demo import make_video_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return make_demo(tmp_path_factory.mktemp("demo") / "demo", num_images={"train": 8, "val": 2}, progress=False)


def load(demo, name):
    cfg = load_config(config_path(name))
    cfg.train_dataloader.dataset.data_root = str(demo)
    return cfg


@pytest.mark.parametrize(
    "name", ["mask_rcnn_hylisanet_demo.py", "semantic_fpn_hylisanet_demo.py", "classifier_hylisanet_demo.py"]
)
def test_a_sheet_per_task(demo, name):
    sheet = draw_training_images(load(demo, name), 5)
    assert sheet.shape == (720, 1080, 3)  # two rows of three cells of 360 pixels
    assert (sheet[360:, 720:] == 255).all()  # the sixth cell is empty
    assert sheet[:360].std() > 10
    np.testing.assert_array_equal(sheet, draw_training_images(load(demo, name), 5))
    assert (sheet != draw_training_images(load(demo, name), 5, seed=1)).any()


def test_images_are_augmented_and_annotated(demo):
    cfg = load(demo, "mask_rcnn_hylisanet_demo.py")
    steps = cfg.train_dataloader.dataset.pipeline
    plain = draw_training_images(cfg, 4)
    next(step for step in steps if step.type == "RandomFlip").prob = 1.0
    flipped = draw_training_images(cfg, 4)
    assert (plain != flipped).any()
    cfg.train_dataloader.dataset.metainfo = dict(palette=[(1, 254, 3)] * 8)
    assert (draw_training_images(cfg, 4) != flipped).any()  # boxes in another colour


class Overexposed:
    """A pipeline's step that leaves values of floating point above 255, as ``PhotoMetricDistortion`` does."""

    def __call__(self, results):
        return {**results, "img": results["img"].astype(np.float32) + 256}


def test_values_beyond_white_are_white(demo):
    cfg = load(demo, "classifier_hylisanet_demo.py")
    cfg.train_dataloader.dataset.pipeline.insert(-1, dict(type=Overexposed))
    sheet = draw_training_images(cfg, 1)
    assert (sheet[20:200, 20:340] == 255).all()


def test_no_image_is_refused(demo):
    with pytest.raises(ValueError, match="--images '0' is not greater than 0"):
        draw_training_images(load(demo, "mask_rcnn_hylisanet_demo.py"), 0)


def test_clips_are_drawn_frame_by_frame(tmp_path):
    cfg = load(
        make_video_demo(tmp_path / "video", num_scenes={"train": 1, "val": 1}, progress=False),
        "video_hylisanet_demo.py",
    )
    assert draw_training_images(cfg, 1).std() > 10
