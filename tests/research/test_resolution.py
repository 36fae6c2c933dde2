"""Which sizes of a test pipeline are changed, and what is drawn."""

import pytest
from mmengine.config import Config
from PIL import Image

from mmlisa import config_path
from mmlisa.training.config import innermost_dataset, load_config
from research import resolution


def sizes(cfg):
    return [
        step[key] for step in innermost_dataset(cfg, "test").pipeline for key in ("scale", "crop_size") if key in step
    ]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("mask_rcnn_hylisanet_s_1x_coco.py", [(2000, 1200)]),
        ("upernet_hylisanet_s_160k_ade20k.py", [(3072, 768)]),
        ("classifier_lisanet_s_300e_imagenet.py", [384, 336]),
    ],
)
def test_sizes_are_multiplied(config, expected):
    cfg = load_config(config_path(config))
    resolution.scale_test_images(cfg, 1.5)
    assert sizes(cfg) == expected


def test_nothing_to_change_and_no_factor():
    cfg = Config(dict(test_dataloader=dict(dataset=dict(type="X", pipeline=[dict(type="LoadImageFromFile")]))))
    with pytest.raises(ValueError, match="no size to change"):
        resolution.scale_test_images(cfg, 2)
    with pytest.raises(ValueError, match="factor=0"):
        resolution.scale_test_images(cfg, 0)


def test_report(tmp_path):
    results = {0.5: {"coco/bbox_mAP": 0.123456, "coco/bbox_mAP_l": 0.4, "time": 3}, 1: {"coco/bbox_mAP": 0.2}}
    assert resolution.to_markdown(results).splitlines() == [
        "| size | bbox AP |",
        "|---|---|",
        "| x0.5 | 0.123 |",
        "| x1 | 0.2 |",
    ]
    resolution.draw(results, tmp_path / "resolution.png")
    with Image.open(tmp_path / "resolution.png") as picture:
        assert picture.size == (840, 504)
