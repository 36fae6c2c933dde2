"""The tools that OpenMMLab's libraries bring take our configs as they are."""

import runpy
import sys
from pathlib import Path

import pytest
from mmengine.utils import get_installed_path

from mmlisa import config_path
from mmlisa.datasets.demo import make_demo

pytestmark = pytest.mark.nightly


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
