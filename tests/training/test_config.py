"""Configs, and what the command line changes in them."""

import re
from contextlib import nullcontext

import pytest
from mmengine.config import Config
from mmengine.registry import OPTIM_WRAPPERS, DefaultScope
from mmseg.registry import TRANSFORMS

import helpers.toy_runner  # noqa: F401 (registers ToyRegression)
from mmlisa import config_path
from mmlisa.errors import UserError
from mmlisa.training import config

COCO, DEMO = "mask_rcnn_hylisanet_s_1x_coco.py", "mask_rcnn_hylisanet_demo.py"


def test_options_and_work_dir(tmp_path):
    assert config.parse_options(["a.lr=1e-3", "a.b=(c,1)"]) == {"a.lr": 1e-3, "a.b": ("c", 1)}
    cfg = config.load_config(COCO, options={"train_dataloader.num_workers": 0, "optim_wrapper.optimizer.lr": 1e-3})
    assert cfg.optim_wrapper.optimizer.lr == 1e-3
    assert not cfg.train_dataloader.persistent_workers
    assert cfg.work_dir == f"work_dirs/{COCO.removesuffix('.py')}"
    assert config.load_config(COCO, work_dir=str(tmp_path)).work_dir == str(tmp_path)


def test_an_option_that_nothing_reads_is_refused():
    with pytest.raises(ValueError, match=r"'load_form'.*load_from"):
        config.load_config(DEMO, options={"load_form": "weights.pth"})


def test_names_that_nothing_reads_are_named(tmp_path):
    (tmp_path / "config.py").write_text("work_dirs = 'out'\nmax_epochs = 3\ntrain_cfg = dict(max_epochs=max_epochs)\n")
    with pytest.warns(UserWarning, match="work_dirs") as seen:
        cfg = config.load_config(str(tmp_path / "config.py"), options={"max_epochs": 5})
    assert "max_epochs" in str(seen[1].message)
    assert (cfg.train_cfg.max_epochs, cfg.work_dirs) == (3, "out")


def test_missing_data_are_named(tmp_path):
    dataset = dict(type="ADE20KDataset", data_root=str(tmp_path), data_prefix=dict(img_path="a", seg_map_path="b"))
    cfg = Config(dict(train_dataloader=dict(dataset=dict(type="RepeatDataset", dataset=dataset))))
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError, match=rf"'{tmp_path}/b' .*train_dataloader\.dataset\.data_root"):
        config.check_data(cfg, "train", "val")
    (tmp_path / "b").mkdir()
    config.check_data(cfg, "train", "val")
    for left in (dict(backend_args=dict(backend="petrel")), dict(data_root="s3://x")):
        cfg.train_dataloader.dataset = {**dataset, "ann_file": "no.json", **left}
        config.check_data(cfg, "train")
    cfg.train_dataloader.dataset = dict(dataset, ann_file="no.json")
    with pytest.raises(FileNotFoundError, match=r"no\.json"):
        config.check_data(cfg, "train")


@pytest.mark.parametrize(
    ("name", "length", "loop", "parts"),
    [
        # The warm-up of the detector is counted in iterations.
        (COCO, dict(epochs=6), dict(max_epochs=6), [(0, 250), (0, 6)]),
        # A part without time is removed.
        ("classifier_hylisanet_s_90e_imagenet21k.py", dict(epochs=1), dict(max_epochs=1), [(0, 1)]),
        (DEMO, dict(iters=20), dict(max_iters=20), [(0, 2), (2, 20)]),
    ],
)
def test_the_schedule_is_stretched_to_a_length(name, length, loop, parts):
    before = config.load_config(name)
    cfg = config.config_for_training(before, **length)
    assert {key: cfg.train_cfg[key] for key in loop} == loop
    assert [(part.get("begin", 0), part.end) for part in cfg.param_scheduler] == parts
    assert before.train_cfg != cfg.train_cfg  # the caller's config stays


@pytest.mark.parametrize(("name", "length", "remedy"), [(COCO, "iters", "--epochs"), (DEMO, "epochs", "--iters")])
def test_a_length_in_another_unit_is_refused(name, length, remedy):
    with pytest.raises(ValueError, match=remedy):
        config.config_for_training(config.load_config(name), **{length: 20})


def test_a_schedule_that_ends_before_it_begins_is_named():
    with pytest.raises(ValueError, match=r"begin=30 and end=20.*--iters"):
        config.config_for_training(config.load_config(DEMO, options={"param_scheduler.1.end": 20}))


def schedule(*parts, **loop) -> Config:
    return Config(dict(train_cfg=loop, param_scheduler=list(parts)))


def test_a_schedule_that_does_not_fit_the_training_is_named():
    """Four iterations an epoch."""
    warm_up = dict(type="LinearLR", by_epoch=False, end=500)
    steps = dict(type="MultiStepLR", milestones=[8, 11], end=12)
    cosine = dict(type="CosineAnnealingLR", by_epoch=False, T_max=90000)
    warning = config.warn_of_schedule(schedule(warm_up, steps, max_epochs=3), 4)
    assert "LinearLR ends at iteration 500, and the training ends at 12" in warning
    assert "MultiStepLR begins to fall at iteration 32, and the training ends at 12" in warning
    assert "CosineAnnealingLR ends at iteration 90000" in config.warn_of_schedule(schedule(cosine, max_iters=12), 4)
    assert "MultiStepLR counts epochs" in config.warn_of_schedule(schedule(steps, max_iters=12), 4)
    assert config.warn_of_schedule(schedule(warm_up, steps, max_epochs=12), 200) is None
    assert config.warn_of_schedule(schedule(dict(cosine, T_max=12), max_iters=12), 4) is None


def test_a_backbone_without_its_pretrained_weights_is_named():
    cfg = config.load_config(COCO)
    assert "classifier_hylisanet_s_300e_imagenet.py" in config.warn_of_random_backbone(cfg)
    pretrained = config.config_for_training(cfg, pretrained="hylisanet_s.pth")
    assert pretrained.model.backbone.init_cfg.source == "hylisanet_s.pth"
    resampled = config.load_config("mask_rcnn_vitdet_dinov2_s_100e_coco.py")
    resampled = config.config_for_training(resampled, pretrained="dino.pth").model.backbone.init_cfg
    assert (resampled.source, resampled.resample_patches) == ("dino.pth", True)
    for given in (
        pretrained,
        config.load_config(COCO, options=dict(load_from="x.pth")),
        config.load_config(COCO.replace("1x", "host_1x")),
    ):
        assert config.warn_of_random_backbone(given) is None
    assert config.warn_of_random_backbone(config.load_config(config_path(DEMO))) is None


def test_epochs_stretch_all_parts_of_the_schedule():
    parts = [
        dict(type="MultiStepLR", milestones=[80, 90]),
        dict(type="CosineAnnealingLR", T_max=100, begin=0, end=None),
        dict(type="LinearLR", by_epoch=False, end=500),
    ]
    hooks = [dict(type="PipelineSwitchHook", switch_epoch=90), dict(type="CastlingHook", begin=0.9)]
    loop = dict(max_epochs=100, val_begin=80, dynamic_intervals=[(90, 1)])
    before = Config(dict(train_cfg=loop, param_scheduler=parts, custom_hooks=hooks))
    cfg = config.config_for_training(before, epochs=20)
    steps, cosine, warm_up = cfg.param_scheduler
    assert (steps.milestones, cosine.T_max, warm_up.end) == ([16, 18], 20, 100)
    assert (cfg.train_cfg.val_begin, cfg.custom_hooks[0].switch_epoch, cfg.custom_hooks[1].begin) == (16, 18, 0.9)
    assert cfg.train_cfg.dynamic_intervals == [(18, 1)]
    # A milestone of 0 would be applied before the first step.
    for kind in (list, tuple):
        before.param_scheduler[0].milestones = kind([3, 60])
        assert config.config_for_training(before, epochs=1).param_scheduler[0].milestones == [1, 1]


def test_a_classifier_that_fine_tunes_another_keeps_its_head():
    cfg = config.load_config("classifier_lisanet_i_30e_imagenet384.py")
    assert "the classifier starts from random weights" in config.warn_of_random_backbone(cfg)
    cfg = config.config_for_training(cfg, pretrained="epoch_150.pth")
    assert cfg.load_from == "epoch_150.pth"
    assert "init_cfg" not in cfg.model.backbone
    # It starts no fine-tuning: only a backbone can be taken over.
    cfg = config.config_for_training(config.load_config("classifier_lisanet_i_150e_imagenet.py"), pretrained="x.pth")
    assert (cfg.load_from, cfg.model.backbone.init_cfg.source) == (None, "x.pth")
    with pytest.raises(ValueError, match=r"--pretrained .*load_from"):  # of images, where the weights must be inflated
        config.config_for_training(config.load_config("classifier_hylisanet_s_110e_kinetics400"), pretrained="x.pth")


@pytest.mark.parametrize(
    ("options", "processes", "warning"),
    [
        ({}, 8, None),  # 8 x 2, as the recipe has it
        ({}, 4, "a step has 8 images.* for 16: --batch 4 or .*accumulative_counts=2 or --auto-scale-lr"),
        ({}, 3, "a step has 6 images.* for 16: --auto-scale-lr"),
        ({}, 16, "a step has 32 images.* for 16: --batch 1 or --auto-scale-lr"),
        ({"optim_wrapper.accumulative_counts": 2}, 4, None),
        ({"auto_scale_lr.enable": True}, 4, None),
        ({"auto_scale_lr.enable": True, "optim_wrapper.accumulative_counts": 2}, 4, "--auto-scale-lr ignores"),
    ],
)
def test_another_total_batch_than_the_recipes_is_named(options, processes, warning):
    found = config.warn_of_batch(config.load_config(COCO, options=options), processes)
    assert found is None if warning is None else re.match(warning, found or "")


@pytest.mark.parametrize("name", ["picodet_castling_lcnet_s_320_coco", "classifier_h_vit3_t_300e_imagenet"])
def test_weights_are_averaged_once_a_step(name):
    """MMEngine averages after every iteration, also after one that only adds gradients."""
    assert "accumulative_counts" not in config.warn_of_batch(config.load_config(name), 4)
    accumulating = config.load_config(name, options={"optim_wrapper.accumulative_counts": 2})
    assert re.match(r"optim_wrapper.accumulative_counts=2 .* --batch", config.warn_of_batch(accumulating, 4))


def test_a_training_that_counts_iterations_does_not_accumulate():
    """160,000 iterations would be 80,000 steps."""
    found = config.warn_of_batch(config.load_config("upernet_flatten_swin_t_160k_ade20k"), 4)
    assert re.search(r"--batch 4 or --auto-scale-lr$", found)


@pytest.mark.parametrize(
    ("name", "kind"),
    [(COCO, "AmpOptimWrapper"), ("classifier_castling_lcnet_s_1000e_imagenet", "mmlisa.AdaptiveClipAmpOptimWrapper")],
)
def test_amp(monkeypatch, name, kind):
    cfg = config.load_config(name)
    monkeypatch.setattr("mmengine.device.get_device", lambda: "cuda")
    for _ in range(2):
        cfg = config.config_for_training(cfg, amp=True)
        # Gradients vanish in fp16 without a scale that follows them.
        assert (cfg.optim_wrapper.type, cfg.optim_wrapper.loss_scale) == (kind, "dynamic")
    assert OPTIM_WRAPPERS.get(cfg.optim_wrapper.type).__mro__[-3].__name__ == "OptimWrapper"
    monkeypatch.setattr("mmengine.device.get_device", lambda: "cpu")
    cfg = config.config_for_training(cfg, amp=True)
    assert cfg.optim_wrapper.type == f"mmlisa.{kind.rpartition('.')[2].replace('Amp', 'Bf16')}"
    assert "loss_scale" not in cfg.optim_wrapper
    assert config.config_for_training(cfg, amp=True).optim_wrapper == cfg.optim_wrapper
    cfg.optim_wrapper.type = "ApexOptimWrapper"
    with pytest.raises(UserError, match=r"--amp .*ApexOptimWrapper"):
        config.config_for_training(cfg, amp=True)


def test_show_dir_draws_overlays_whatever_the_config_draws(tmp_path):
    cfg = Config(dict(default_hooks=dict(visualization=dict(type="DetVisualizationHook", draw=False))))
    shown = config.config_for_test(cfg, show_dir=str(tmp_path)).default_hooks
    assert shown.visualization == dict(type="mmlisa.OverlayHook", test_out_dir=str(tmp_path))
    assert "visualization" not in config.config_for_test(cfg).default_hooks
    assert cfg.default_hooks.visualization.draw is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('_base_ = "mmlisa::x.py"', r"config_path\(NAME\)"),
        ('_base_ = "mmseg::upernet/x.py"', "mmseg"),
        ('_base_ = ["a.py", "a.py"]', "Duplicate key"),
        ("a = ", "SyntaxError"),
    ],
)
def test_a_config_that_cannot_be_read_is_named(tmp_path, text, message):
    (tmp_path / "a.py").write_text("a = 1")
    (tmp_path / "config.py").write_text(text)
    with pytest.raises(ValueError, match=rf"config\.py.*{message}"):
        config.load_config(str(tmp_path / "config.py"))


def test_names_of_the_data_come_before_those_of_their_type(tmp_path):
    (tmp_path / "names.txt").write_text("red fox\nnewt\n")
    names = str(tmp_path / "names.txt")
    assert config.find_metainfo(dict(type="mmdet.CocoDataset"))["classes"][0] == "person"
    assert config.find_metainfo(dict(type="mmdet.CocoDataset", metainfo=dict(classes=("cat",))))["classes"] == ("cat",)
    assert config.find_metainfo(dict(type="mmpretrain.CustomDataset", classes=names))["classes"] == ["red fox", "newt"]
    with DefaultScope.overwrite_default_scope("mmdet"):  # types of most configs have no scope
        assert config.find_metainfo(dict(type="CocoDataset"))["classes"][0] == "person"


def test_the_first_of_joined_data_sets_is_the_innermost():
    joined = dict(type="ConcatDataset", datasets=[dict(type="A", pipeline=[1]), dict(type="B")])
    cfg = Config(dict(test_dataloader=dict(dataset=dict(type="RepeatDataset", dataset=joined))))
    assert config.innermost_dataset(cfg, "test") == dict(type="A", pipeline=[1])
    assert config.innermost_dataset(cfg, "val") == {}
    assert (
        config.type_name(dict(type="mmlisa.LiSANet"))
        == config.type_name(dict(type=type("LiSANet", (), {})))
        == "LiSANet"
    )


def test_tta_sees_every_image_at_six_scales_plain_and_flipped():
    cfg = config.config_for_test(config.load_config("upernet_ivit_t_160k_ade20k.py"), tta=True)
    assert (cfg.model.type, cfg.model.module.type) == ("SegTTAModel", "EncoderDecoder")
    with DefaultScope.overwrite_default_scope("mmseg"):
        step = TRANSFORMS.build(cfg.test_dataloader.dataset.pipeline[-1])
    views = [(compose.transforms[0].scale[1], compose.transforms[1].prob) for compose in step.subroutines]
    assert sorted(views) == [(side, flip) for side in (256, 384, 512, 640, 768, 896) for flip in (0.0, 1.0)]


@pytest.mark.parametrize("own", [False, True])
def test_the_preprocessor_beside_a_model_becomes_its_own(own):
    beside = dict(type="BaseDataPreprocessor", non_blocking=True)
    cfg = Config(dict(model=dict(type="ToyRegression"), data_preprocessor=beside))
    if own:
        cfg.model.data_preprocessor = dict(type="BaseDataPreprocessor")
    assert config.build_model(cfg).data_preprocessor._non_blocking is not own


@pytest.mark.parametrize("wrapped", [True, False])
def test_mosaic_with_masks_is_refused(wrapped):
    mosaic = [dict(type="mmdet.Mosaic", img_scale=(64, 64))]
    dataset = (
        dict(type="MultiImageMixDataset", dataset=dict(pipeline=[]), pipeline=mosaic)
        if wrapped
        else dict(pipeline=mosaic)
    )
    for heads, refused in (
        (dict(mask_head=dict(type="FCNMaskHead")), True),
        (dict(bbox_head=dict(type="YOLOXHead")), False),
    ):
        cfg = Config(dict(model=heads, train_dataloader=dict(dataset=dataset)))
        with pytest.raises(UserError, match="CachedMosaic") if refused else nullcontext():
            config.check_mixing(cfg)
