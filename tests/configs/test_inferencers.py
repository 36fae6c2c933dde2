"""The tools that OpenMMLab's libraries bring take our configs as they are."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from mmengine.utils import get_installed_path

from mmlisa import config_path
from mmlisa.datasets.demo import make_demo

pytestmark = pytest.mark.nightly

IMAGE = np.random.default_rng(0).integers(0, 256, (70, 90, 3), dtype=np.uint8)


def test_inferencers():
    from mmdet.apis import DetInferencer
    from mmpretrain import ImageClassificationInferencer
    from mmseg.apis import MMSegInferencer

    detector = DetInferencer(config_path("mask_rcnn_hylisanet_demo.py"), device="cpu", show_progress=False)
    (result,) = detector(IMAGE)["predictions"]
    assert set(result["labels"]) <= set(range(8))
    classes = MMSegInferencer(config_path("upernet_hylisanet_demo.py"), device="cpu")(IMAGE)["predictions"]
    assert classes.shape == IMAGE.shape[:2]
    assert set(np.unique(classes)) <= set(range(9))
    # Models in mmpretrain's own registry of names have weights; ours are files.
    classifier = ImageClassificationInferencer(
        config_path("classifier_hylisanet_demo.py"), pretrained=None, device="cpu"
    )
    assert classifier(IMAGE)[0]["pred_scores"].sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("library", "name"), [("mmdet", "mask_rcnn_ivit_demo.py"), ("mmseg", "upernet_hylisanet_demo.py")]
)
def test_stock_train_tool(library, name, tmp_path, monkeypatch):
    """One iteration of a library's own tools/train.py, with nothing of ours imported before."""
    data = tmp_path / "demo"
    make_demo(data, num_images=dict(train=4, val=4), progress=False)
    options = [f"{split}_dataloader.dataset.data_root={data}/" for split in ("train", "val", "test")]
    options += ["train_cfg.max_iters=1", "train_cfg.val_interval=9", "train_dataloader.batch_size=2"]
    options += [f"{split}_evaluator.ann_file={data}/annotations/instances_val.json" for split in ("val", "test")] * (
        library == "mmdet"
    )
    tool = Path(get_installed_path(library)) / ".mim" / "tools" / "train.py"
    argv = ["train.py", config_path(name), "--work-dir", str(tmp_path / "work"), "--cfg-options", *options]
    monkeypatch.setattr(sys, "argv", argv)
    runpy.run_path(str(tool), run_name="__main__")
    assert (tmp_path / "work" / "last_checkpoint").exists()
