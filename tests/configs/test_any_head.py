"""Heads that other libraries bring, each on a backbone of ours: the demo configs train two iterations and test."""

from pathlib import Path

import pytest

from mmlisa.training.config import load_config
from mmlisa.training.runner import build_runner

CONFIGS = Path(__file__).parents[2] / "configs"
HEADS = {"rtmdet_castling_lcnet_demo.py": "coco/bbox_mAP", "mask2former_flatten_cswin_demo.py": "mIoU"}
MORE = ["retinanet_flatten_swin_demo.py", "yolox_castling_esnet_demo.py", "dino_ivit_demo.py"]


@pytest.mark.parametrize("name", [*HEADS, *(pytest.param(name, marks=pytest.mark.nightly) for name in MORE)])
def test_two_iterations_and_a_test(name, tmp_path):
    cfg = load_config(str(CONFIGS / name), work_dir=str(tmp_path))
    cfg.train_cfg.update(max_iters=2, val_interval=2)
    cfg.train_dataloader.batch_size = 2
    for loader in (cfg.val_dataloader, cfg.test_dataloader):
        loader.dataset.indices = 2
    if "score_thr" in cfg.model.test_cfg:  # two iterations make it sure of nothing, and no detections have no metrics
        cfg.model.test_cfg.score_thr = 0
    cfg.default_hooks.logger.interval = 1
    cfg.default_hooks.pop("visualization", None)
    cfg.experiment_name = f"{tmp_path.name}-{name}"
    runner = build_runner(cfg, 0.5)
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
