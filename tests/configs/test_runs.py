"""Configs in a run: heads of other libraries on backbones of ours, the libraries' own tools, and two runs in one process."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmengine.utils import get_installed_path

from mmlisa import config_path
from mmlisa.datasets.demo import make_demo
from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner

HEADS = {"rtmdet_castling_lcnet_demo.py": "coco/bbox_mAP", "mask2former_flatten_cswin_demo.py": "mIoU"}
MORE = ["retinanet_flatten_swin_demo.py", "yolox_castling_esnet_demo.py", "dino_ivit_demo.py"]


@pytest.mark.parametrize("name", [*HEADS, *(pytest.param(name, marks=pytest.mark.nightly) for name in MORE)])
def test_two_iterations_and_a_test(name, tmp_path):
    cfg = load_config(name, work_dir=str(tmp_path))
    cfg.train_cfg.update(max_iters=2, val_interval=2)
    cfg.train_dataloader.batch_size = 2
    for loader in (cfg.val_dataloader, cfg.test_dataloader):
        loader.dataset.indices = 2
    if "score_thr" in cfg.model.test_cfg:  # two iterations make it sure of nothing, and no detections have no metrics
        cfg.model.test_cfg.score_thr = 0
    cfg.default_hooks.logger.interval = 1
    cfg.default_hooks.pop("visualization", None)
    cfg.experiment_name = f"{tmp_path.name}-{name}"
    runner = build_runner(cfg)
    received = set()
    for parameter_name, parameter in runner.model.backbone.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _, name=parameter_name: received.add(name))
    runner.train()
    history = runner.message_hub.log_scalars["train/loss"].data[0]
    assert len(history) == 2
    assert all(0 < loss < 1e3 for loss in history)
    wanted = {n for n, p in runner.model.backbone.named_parameters() if p.requires_grad}
    assert wanted == received, "DistributedDataParallel would stop at what gets no gradient"
    assert f"val/{HEADS.get(name, 'coco/bbox_mAP')}" in runner.message_hub.log_scalars


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("library", "name"), [("mmdet", "mask_rcnn_ivit_demo.py"), ("mmseg", "upernet_hylisanet_demo.py")]
)
def test_stock_train_tool(library, name, tmp_path):
    """One iteration of a library's own tools/train.py, with nothing of ours imported before."""
    data = tmp_path / "demo"
    make_demo(data, num_images=dict(train=4, val=4))
    options = [f"{split}_dataloader.dataset.data_root={data}/" for split in ("train", "val", "test")]
    options += ["train_cfg.max_iters=1", "train_cfg.val_interval=9", "train_dataloader.batch_size=2"]
    options += [f"{split}_evaluator.ann_file={data}/annotations/instances_val.json" for split in ("val", "test")] * (
        library == "mmdet"
    )
    tool = Path(get_installed_path(library)) / ".mim" / "tools" / "train.py"
    program = "import mmlisa, runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    words = [str(tool), config_path(name), "--work-dir", str(tmp_path / "work"), "--cfg-options", *options]
    subprocess.run([sys.executable, "-c", program, *words], check=True)
    assert (tmp_path / "work" / "last_checkpoint").exists()


@pytest.mark.parametrize("library", ["mmdet", "mmseg", "mmpretrain"])
def test_two_runs_in_a_process(library, tmp_path):
    """Curves and pictures of a run lie in its own folder."""
    import_module(f"{library}.visualization")  # registers its visualizer
    for name in ("first", "second"):
        cfg = Config.fromfile(Path(__file__).parents[2] / "configs" / "_base_" / f"runtime_{library}.py")
        run = SimpleNamespace(_experiment_name=f"{library}_{name}", _log_dir=str(tmp_path / name))
        with DefaultScope.overwrite_default_scope(library):
            Runner.build_visualizer(run, cfg.visualizer).add_scalar("loss", 1.0)
        assert list((tmp_path / name).rglob("scalars.json"))
