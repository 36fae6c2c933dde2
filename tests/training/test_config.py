"""Config loading and the command line's options."""

import pickle
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope

from helpers import toy_runner  # noqa: F401, registers its data
from mmlisa import config_path
from mmlisa.training.config import (
    check_default_device,
    find_metainfo,
    innermost_dataset,
    load_config,
    set_amp,
    set_auto_scale_lr,
    set_classwise,
    set_epochs,
    set_pretrained,
    set_show_dir,
    set_tta,
    warn_of_random_backbone,
)
from mmlisa.training.runner import set_resume

COCO = config_path("mask_rcnn_hylisanet_s_1x_coco.py")
RTMDET_INS = next(Path(COCO).parent.glob("rtmdet_ins_*.py"))


def test_missing_config_names_close_ones():
    with pytest.raises(FileNotFoundError, match=r"mask_rcnn_hylisanet_s_1x_coco\.py"):
        load_config(COCO.replace("coco.py", "cocoo.py"))
    with pytest.raises(FileNotFoundError, match=r"mask_rcnn_hylisanet_s_1x_coco\.py"):
        config_path("mask_rcnn_hylisanet_s_2x_coco.py")


def test_broken_config_is_named(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("model = dict(")
    with pytest.raises(ValueError, match=r"broken\.py"):
        load_config(str(path))


def test_options_and_work_dir():
    cfg = load_config(COCO, options={"optim_wrapper.optimizer.lr": 1.0})
    assert cfg.optim_wrapper.optimizer.lr == 1.0
    assert cfg.work_dir == "work_dirs/mask_rcnn_hylisanet_s_1x_coco"
    assert load_config(COCO, work_dir="elsewhere").work_dir == "elsewhere"


def test_variables_of_a_config_are_noted(tmp_path, capsys):
    path = tmp_path / "config.py"
    path.write_text("width = 8\nsizes = dict(a=1)\nmodel = dict(width=width, sizes=sizes)\n")
    cfg = load_config(str(path), options={"model.width": 16})
    assert "variable" not in capsys.readouterr().out
    cfg = load_config(str(path), options={"width": 16, "sizes.a": 2})
    assert (cfg.width, cfg.model.width) == (16, 8)
    assert "--cfg-options: width, sizes.a: a variable of the config file" in capsys.readouterr().out


def test_amp(monkeypatch):
    cfg = load_config(COCO)
    monkeypatch.setattr("mmengine.device.get_device", lambda: "cpu")
    with pytest.raises(ValueError, match="--amp needs a GPU"):
        set_amp(cfg)
    monkeypatch.setattr("mmengine.device.get_device", lambda: "cuda")
    set_amp(cfg)
    assert cfg.optim_wrapper.type == "AmpOptimWrapper"
    # fp16's gradients vanish without a scale that follows them.
    assert cfg.optim_wrapper.loss_scale == "dynamic"
    own = load_config(COCO, options={"optim_wrapper.loss_scale": 512.0})
    set_amp(own)
    assert own.optim_wrapper.loss_scale == 512.0
    cfg.optim_wrapper.type = "ApexOptimWrapper"
    with pytest.raises(ValueError, match="ApexOptimWrapper"):
        set_amp(cfg)


@pytest.mark.parametrize(
    ("name", "chosen", "hint"),
    [
        ("cpu", "mps", "MMEngine trains on 'mps' .* PYTORCH_ENABLE_MPS_FALLBACK=1"),
        ("xpu", "cpu", "leave --device out$"),
    ],
)
def test_a_device_that_mmengine_does_not_take_is_refused(monkeypatch, name, chosen, hint):
    monkeypatch.setattr("mmengine.device.get_device", lambda: chosen)
    with pytest.raises(ValueError, match=f"--device '{name}': .*{hint}"):
        check_default_device(name)
    check_default_device(f"{chosen}:0")


def test_a_backbone_without_its_pretrained_weights_is_named():
    cfg = load_config(COCO)
    assert "classifier_hylisanet_s_300e_imagenet.py" in warn_of_random_backbone(cfg)
    set_pretrained(cfg, "hylisanet_s.pth")
    assert cfg.model.backbone.init_cfg.source == "hylisanet_s.pth"
    for given in (cfg, load_config(COCO, options=dict(load_from="x.pth")), load_config(COCO.replace("1x", "host_1x"))):
        assert warn_of_random_backbone(given) is None
    assert warn_of_random_backbone(load_config(config_path("mask_rcnn_hylisanet_demo.py"))) is None


def test_auto_scale_lr():
    cfg = load_config(COCO)
    assert not cfg.auto_scale_lr.enable
    set_auto_scale_lr(cfg)
    assert (cfg.auto_scale_lr.enable, cfg.auto_scale_lr.base_batch_size) == (True, 16)
    with pytest.raises(ValueError, match="base_batch_size"):
        set_auto_scale_lr(Config(dict(auto_scale_lr=dict(enable=False))))
    with pytest.raises(ValueError, match="base_batch_size"):
        set_auto_scale_lr(Config(dict(auto_scale_lr=None)))


def test_resume(tmp_path):
    cfg = load_config(COCO, work_dir=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        set_resume(cfg, None)
    torch.save({"state_dict": {"a": torch.ones(1)}, "optimizer": {}, "meta": {"iter": 1}}, tmp_path / "epoch_1.pth")
    for checkpoint in (None, str(tmp_path / "epoch_1.pth")):
        cfg.resume, cfg.load_from = False, None
        set_resume(cfg, checkpoint)
        assert (cfg.resume, cfg.load_from) == (True, str(tmp_path / "epoch_1.pth"))


def test_tta_and_show_dir(tmp_path):
    with pytest.raises(ValueError, match=r"--tta: .* this model has masks"):
        set_tta(load_config(COCO))
    with pytest.raises(ValueError, match=r"--tta: .* this model has masks"):
        set_tta(load_config(RTMDET_INS))
    cfg = load_config("retinanet_flatten_swin_demo.py")
    set_tta(cfg)
    assert cfg.model.type == "DetTTAModel"
    augment = cfg.test_dataloader.dataset.pipeline[-1]
    assert augment.type == "TestTimeAug"
    flips, (pack,) = augment.transforms
    assert [(flip.type, flip.prob) for flip in flips] == [("RandomFlip", 0.0), ("RandomFlip", 1.0)]
    # By these the model turns the boxes of a flipped image back.
    assert {"flip", "flip_direction", "img_id", "scale_factor"} <= {*pack.meta_keys}
    assert cfg.model.module.type == "RetinaNet"
    set_show_dir(cfg, str(tmp_path))
    assert cfg.default_hooks.visualization.test_out_dir == str(tmp_path)


@pytest.mark.parametrize("hook", [None, dict(type="DetVisualizationHook", draw=False), dict(type="mmlisa.OverlayHook")])
def test_show_dir_draws_overlays_whatever_the_config_draws(tmp_path, hook):
    cfg = Config(dict(default_hooks=dict(visualization=hook) if hook else {}))
    set_show_dir(cfg, str(tmp_path))
    assert cfg.default_hooks.visualization == dict(type="mmlisa.OverlayHook", draw=True, test_out_dir=str(tmp_path))
    set_show_dir(cfg, None)
    assert "visualization" not in cfg.default_hooks


def test_classwise():
    """AP of each class in a test with mmdet's metric, alone or in a list, unless the config decides."""
    coco, own, other = dict(type="mmdet.CocoMetric"), dict(type="CocoMetric", classwise=False), dict(type="IoUMetric")
    cfg = Config(dict(test_evaluator=[coco, own, other]))
    set_classwise(cfg)
    assert cfg.test_evaluator == [dict(coco, classwise=True), own, other]
    cfg = Config(dict(test_evaluator=coco))
    set_classwise(cfg)
    assert cfg.test_evaluator.classwise
    set_classwise(Config(dict(test_evaluator=None)))


def test_downstream_project_inherits(tmp_path):
    """A project elsewhere, of an installed package or of a clone."""
    path = tmp_path / "mine.py"
    path.write_text(
        '_base_ = __import__("mmlisa").config_path("mask_rcnn_hylisanet_s_1x_coco.py")\n'
        "model = dict(roi_head=dict(bbox_head=dict(num_classes=3), mask_head=dict(num_classes=3)))\n"
    )
    cfg = load_config(str(path))
    assert cfg.model.backbone.type == "mmlisa.LiSANet"
    assert cfg.model.roi_head.mask_head.num_classes == 3
    assert cfg.optim_wrapper.optimizer.lr == 1e-4


@pytest.mark.parametrize(("epochs", "parts"), [(30, [(0, 2), (2, 30)]), (5, [(0, 1), (1, 5)]), (1, [(0, 1)])])
def test_no_part_of_a_schedule_becomes_empty(epochs, parts):
    """20 of 300 epochs are warm-up."""
    cfg = load_config(config_path("imagenet/classifier_ivit_t_300e_imagenet.py"))
    set_epochs(cfg, epochs)
    assert [(part.get("begin", 0), part.end) for part in cfg.param_scheduler] == parts


def test_epochs_unpickle_no_data(tmp_path):
    """The images are counted before the runner guards the process."""
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(dict(metainfo={}, data_list=[])))
    cfg = load_config(config_path("mask_rcnn_hylisanet_demo.py"))
    cfg.train_dataloader.dataset = dict(type="BaseDetDataset", ann_file=str(path))
    with pytest.raises(ValueError, match="is a pickle and could run code"):
        set_epochs(cfg, 1)


@pytest.mark.parametrize(
    ("name", "epochs", "length", "ends"),
    [
        ("mask_rcnn_hylisanet_s_1x_coco.py", 6, 6, [1000, 6, [4, 6]]),  # the warm-up is counted in iterations and stays
        ("mask_rcnn_hylisanet_demo.py", 2, 140, [10, 140]),  # 280 images, 4 a step; 30 of 400 iterations are warm-up
    ],
)
def test_epochs_stretch_the_schedule(name, epochs, length, ends, tmp_path):
    cfg = load_config(config_path(name))
    if cfg.train_cfg.get("max_iters"):
        cfg.train_dataloader.dataset.data_root = str(tmp_path / "demo")
    warm_up, *rest = cfg.param_scheduler
    before = warm_up.end
    set_epochs(cfg, epochs)
    assert (cfg.train_cfg.get("max_epochs") or cfg.train_cfg.max_iters) == length
    assert cfg.train_cfg.val_interval <= length
    assert rest[0].end == ends[1]
    assert warm_up.end == (before if cfg.train_cfg.get("max_epochs") else ends[0])
    if len(ends) > 2:
        assert rest[0].milestones == ends[2]


def test_epochs_stretch_what_counts_epochs():
    parts = [
        dict(type="ExponentialLR", gamma=0.9, begin=0, end=None),
        dict(type="StepLR", step_size=30, gamma=0.1),
        dict(type="CosineRestartLR", periods=[40, 60], restart_weights=[1, 1]),
        dict(type="OneCycleLR", total_steps=100, eta_max=1),
        dict(type="ExponentialLR", gamma=0.9, by_epoch=False),
    ]
    hooks = [
        dict(type="PipelineSwitchHook", switch_epoch=90),
        dict(type="mmlisa.SelfDistillationHook", distill_from=25),
        dict(type="EMAHook", begin_epoch=50, begin_iter=0),
    ]
    loop = dict(max_epochs=100, val_begin=80, val_interval=10, dynamic_intervals=[(90, 1)])
    cfg = Config(dict(train_cfg=loop, param_scheduler=parts, custom_hooks=hooks))
    set_epochs(cfg, 20)
    decay, steps, restarts, cycle, by_iteration = cfg.param_scheduler
    assert decay.gamma**20 == pytest.approx(0.9**100)
    assert (steps.step_size, steps.gamma) == (6, 0.1)
    assert restarts.periods == [8, 12]
    assert cycle.total_steps == 20
    assert by_iteration.gamma == 0.9
    assert [cfg.custom_hooks[0].switch_epoch, cfg.custom_hooks[1].distill_from] == [18, 5]
    assert (cfg.custom_hooks[2].begin_epoch, cfg.custom_hooks[2].begin_iter) == (10, 0)
    assert cfg.train_cfg == dict(max_epochs=20, val_begin=16, val_interval=10, dynamic_intervals=[(18, 1)])


def test_schedules_by_optimizer_are_not_stretched():
    cfg = Config(dict(train_cfg=dict(max_epochs=12), param_scheduler=dict(generator=[dict(type="LinearLR", end=12)])))
    with pytest.raises(ValueError, match=r"--epochs '3': the config has .* several schedules"):
        set_epochs(cfg, 3)


def test_a_last_batch_counts():
    cfg = load_config("mask_rcnn_hylisanet_demo.py", options={"train_dataloader.batch_size": 3})
    cfg.train_dataloader.dataset = dict(type="ToyPoints", length=280)
    cfg.default_scope = "mmengine"
    cfg.custom_hooks = [dict(type="EMAHook", begin_iter=200)]  # of 400
    set_epochs(cfg, 1)
    assert cfg.train_cfg.max_iters == 94
    assert cfg.custom_hooks[0].begin_iter == 47


@pytest.mark.parametrize("given", [{}, dict(default_hooks=None)])
def test_a_config_without_hooks_is_tested(given):
    cfg = Config(dict(model=dict(), **given))
    set_show_dir(cfg, None)
    assert cfg.default_hooks == {}


def test_names_of_the_data_come_before_those_of_their_type():
    assert find_metainfo(dict(type="mmdet.CocoDataset"))["classes"][0] == "person"
    assert find_metainfo(dict(type="mmdet.CocoDataset", metainfo=dict(classes=("cat",))))["classes"] == ("cat",)
    with DefaultScope.overwrite_default_scope("mmdet"):  # types of most configs have no scope
        assert find_metainfo(dict(type="CocoDataset"))["classes"][0] == "person"


def test_names_of_the_data_may_be_in_a_file(tmp_path):
    (tmp_path / "names.txt").write_text("red fox\nnewt\n")
    names = str(tmp_path / "names.txt")
    for dataset in (
        dict(type="mmdet.CocoDataset", metainfo=dict(classes=names)),
        dict(type="mmpretrain.CustomDataset", classes=names),
        dict(type="mmpretrain.CustomDataset", classes=["red fox", "newt"]),
        dict(type="mmpretrain.CustomDataset", classes="nosuch.txt", metainfo=dict(classes=["red fox", "newt"])),
    ):
        assert find_metainfo(dataset)["classes"] == ["red fox", "newt"]


def test_the_first_of_joined_data_sets_is_the_innermost():
    joined = dict(type="ConcatDataset", datasets=[dict(type="A", pipeline=[1]), dict(type="B")])
    cfg = Config(dict(test_dataloader=dict(dataset=dict(type="RepeatDataset", dataset=joined))))
    assert innermost_dataset(cfg, "test") == dict(type="A", pipeline=[1])
    assert innermost_dataset(cfg, "val") == {}


def test_epochs_of_several_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    for launcher, length in (("none", 140), ("pytorch", 36)):  # 280 images, 4 a step and process, and twice
        cfg = load_config(config_path("mask_rcnn_hylisanet_demo.py"), launcher=launcher)
        cfg.train_dataloader.dataset.data_root = str(tmp_path / "demo")
        set_epochs(cfg, 2)
        assert cfg.train_cfg.max_iters == length
