"""UperNet's multi-scale test: ``tools/test.py --tta`` sees every image at six scales, plain and flipped."""

from pathlib import Path

import numpy as np
from mmengine.registry import DefaultScope
from mmseg.registry import TRANSFORMS
from PIL import Image

from mmlisa.training.config import load_config, set_tta

CONFIG = Path(__file__).parents[2] / "configs" / "upernet_ivit_t_160k_ade20k.py"


def test_tta_scales_and_flips(tmp_path):
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(tmp_path / "image.png")
    Image.fromarray(np.ones((40, 60), np.uint8)).save(tmp_path / "labels.png")
    cfg = load_config(str(CONFIG))
    set_tta(cfg)
    assert cfg.model.type == "SegTTAModel"
    assert cfg.model.module.type == "EncoderDecoder"
    result = dict(
        img_path=str(tmp_path / "image.png"),
        seg_map_path=str(tmp_path / "labels.png"),
        seg_fields=[],
        reduce_zero_label=True,
    )
    with DefaultScope.overwrite_default_scope("mmseg"):
        for step in cfg.test_dataloader.dataset.pipeline:
            result = TRANSFORMS.build(step)(result)
    shapes = [tuple(image.shape[1:]) for image in result["inputs"]]
    sides = [256, 384, 512, 640, 768, 896]
    assert sorted({height for height, _ in shapes}) == sides
    assert all(abs(width - 1.5 * height) < 1 for height, width in shapes)
    flips = [(s.metainfo["img_shape"][0], s.metainfo["flip"]) for s in result["data_samples"]]
    assert sorted(flips) == sorted((side, flip) for side in sides for flip in (False, True))
    assert all(s.gt_sem_seg.shape == (40, 60) for s in result["data_samples"])
