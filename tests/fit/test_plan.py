"""The numbers of a plan follow from the data, and the config that is written builds."""

import re
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

from helpers import folders
from mmlisa import config_path
from mmlisa.data.dataset import Dataset, Sample
from mmlisa.errors import UserError
from mmlisa.fit.plan import PRESETS, Options, Preset, _class_counts, make_plan, write_configs


def make(task="detection", number=100, size=(640, 480), side=48.0, has_masks=True):
    samples = []
    for index in range(number):
        objects = [dict(category_id=0, bbox=[0, 0, side, side], iscrowd=0)] if task == "detection" else []
        split = "val" if index % 5 == 0 else "train"
        samples.append(Sample(f"{index}.jpg", split, size, objects, f"{index}.png", index % 3))
    return Dataset(Path("/data/animals"), task, folders.CLASSES, samples, has_masks=has_masks)


def plan_of(dataset, on_gpu=False, **options):
    return make_plan(dataset, Options("data", **options), on_gpu)


def config_of(folder, dataset, model, weights=None, on_gpu=False, tile="off"):
    plan = plan_of(dataset, on_gpu, model=model, weights=weights, tile=tile)
    texts = write_configs(plan, dataset, folder)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return plan, Config.fromfile(folder / "config.py"), next(iter(texts.values()))


@pytest.mark.parametrize(
    ("size", "side", "on_gpu", "expected"),
    [
        ((640, 480), 30, True, 640),  # never above the images' own
        ((2000, 1500), 144, True, 672),  # 2000 * 48 / 144
        ((4000, 3000), 48, True, 1344),  # the most on a GPU, in multiples of 32
        ((4000, 3000), 400, True, 512),  # the least
        ((4000, 3000), 48, False, 384),
        ((100, 80), 50, False, 96),
    ],
)
def test_side_by_the_sizes_of_objects(size, side, on_gpu, expected):
    dataset = make(size=size, side=side)
    for sample in dataset.samples:
        sample.objects += [dict(category_id=0, bbox=[0, 0, 9, 9], iscrowd=1)] * 3  # crowds do not count
    assert plan_of(dataset, on_gpu, tile="off").side == expected
    assert any("tiles" in note for note in dataset.notes) == (expected in (384, 1344))
    plan = plan_of(dataset, on_gpu, size=300)
    assert (plan.side, plan.tiles) == (288, False)


@pytest.mark.parametrize(
    ("size", "side", "on_gpu", "tile", "expected"),
    [
        ((4000, 3000), 48, False, "auto", 384),  # 48 * 384 / 4000 = 4.6 pixels
        ((4000, 3000), 47.9, True, "auto", 640),  # 48 * 1333 / 4000 = 16
        ((4000, 3000), 48.1, True, "auto", 0),
        ((4000, 3000), 48, False, "off", 0),
        ((4000, 3000), 400, True, 512, 512),
        ((4000, 3000), 400, True, 100, 96),  # multiples of 32
        ((300, 200), 8, False, "auto", 0),  # no image is larger than a tile
        ((300, 200), 8, False, 300, 0),
    ],
)
def test_tiles_by_the_sizes_of_objects(size, side, on_gpu, tile, expected):
    dataset = make(size=size, side=side)
    plan = plan_of(dataset, on_gpu, tile=tile)
    assert (plan.tiles, plan.side if plan.tiles else 0) == (bool(expected), expected)
    assert any("--tile 300" in note for note in dataset.notes) == (tile == 300)


def test_an_epoch_of_tiles_covers_the_images():
    dataset = make(size=(1000, 600), number=1000)
    assert plan_of(dataset, tile=320, epochs=1).steps == 800 * 4 * 2 / 4  # batches of 4
    with pytest.raises(ValueError, match="--tile 320"):
        plan_of(make("classification"), tile=320)


def test_batch_and_steps():
    plan, few = plan_of(make()), plan_of(make(number=5), epochs=7)
    assert (plan.batch, plan.steps, plan.rate) == (4, 400, 1.5e-3)  # at least 400 steps and 6 epochs
    assert plan_of(make(number=2000)).steps == 2400
    assert (few.batch, few.steps, few.rate) == (2, 14, 7.5e-4)
    assert plan_of(make(), batch=8).rate == 3e-3


def test_model_by_device_and_size():
    for width, on_gpu, name in ((640, False, "hylisanet"), (640, True, "flatten-swin-t"), (1600, True, "ivit-t")):
        assert plan_of(make(size=(width, 480)), on_gpu).preset == PRESETS["detection"][name]


@pytest.mark.parametrize("model", ["picodet", config_path("mask_rcnn_ivit_demo.py")])
def test_a_model_of_another_task_is_refused(model):
    with pytest.raises(ValueError, match=f"--model '{model}'"):
        plan_of(make("segmentation"), model=model)


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("mask_rcnn_ivit_demo.py", ("", 1.5e-3, 4, 400, 0)),
        ("mask_rcnn_flatten_swin_t_host_1x_coco.py", (PRESETS["detection"]["flatten-swin-t"].weights, 1e-4, 16, 0, 12)),
        ("picodet_castling_lcnet_s_320_coco.py", ("", 0.8, 640, 0, 300)),
    ],
)
def test_a_config_is_a_model_with_its_own_recipe(tmp_path, name, recipe):
    path = config_path(name)
    plan, cfg, _ = config_of(tmp_path, make(), path)
    assert plan.preset == Preset(path, *recipe)
    assert cfg.optim_wrapper.optimizer.type == Config.fromfile(path).optim_wrapper.optimizer.type


@pytest.mark.parametrize(
    ("init_cfg", "weights"),
    [
        (None, ""),
        ([dict(type="Normal", layer="Linear"), dict(type="mmlisa.PublishedWeights", source="timm:x")], "timm:x"),
        (dict(type="mmlisa.PublishedWeights", source="timm:x", resample_patches=True), "timm:x"),
        ([], ""),
    ],
)
def test_published_weights_of_a_users_config(tmp_path, init_cfg, weights):
    base = config_path("mask_rcnn_hylisanet_demo.py")
    (tmp_path / "my.py").write_text(f"_base_ = {base!r}\nmodel = dict(backbone=dict(init_cfg={init_cfg!r}))")
    plan, cfg, _ = config_of(tmp_path, make(), str(tmp_path / "my.py"))
    assert plan.preset.weights == weights
    found = cfg.model.backbone.init_cfg
    if weights:
        own = init_cfg if isinstance(init_cfg, dict) else init_cfg[-1]
        assert found == own
        assert found["source"] == weights
    else:
        assert found == init_cfg
    assert not config_of(tmp_path, make(), str(tmp_path / "my.py"), "")[1].model.backbone.init_cfg


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("detection", "rtmdet_ins_ivit_t_300e_coco.py"),
        ("detection", "picodet_castling_lcnet_s_320_coco.py"),
        ("classification", "classifier_mila_t_300e_imagenet.py"),
    ],
)
def test_recipes_with_an_average_and_with_crops_fit_other_images(tmp_path, task, name):
    cfg = config_of(tmp_path, make(task), config_path(name), "")[1]
    hooks = [hook.type for hook in cfg.custom_hooks]
    assert [kind for kind in hooks if "EMA" in kind or "Distillation" in kind] == ["EMAHook"]
    assert "mmlisa.FiniteLossHook" in hooks
    if task == "detection":  # whatever the size of the images, necks add maps of two levels
        assert cfg.model.data_preprocessor.pad_size_divisor == 32


@pytest.mark.parametrize(
    ("task", "model", "on_gpu"),
    [
        ("detection", "picodet", False),
        ("detection", "flatten-swin-t", True),
        ("segmentation", "hylisanet", False),
        ("classification", "ivit-t", True),
        ("detection", "dinov2-s", False),
        ("segmentation", "dinov3-s", True),
        ("classification", "dinov2-s", False),
    ],
)
def test_the_config_builds_and_explains_each_number(tmp_path, task, model, on_gpu):
    pytest.importorskip({"detection": "mmdet", "segmentation": "mmseg", "classification": "mmpretrain"}[task])
    plan, cfg, text = config_of(tmp_path, make(task), model, on_gpu=on_gpu)
    counts = re.findall(r"'num_classes': (\d+)", str(cfg.model.to_dict()))
    assert set(counts) == {"3"}
    assert cfg.train_dataloader.batch_size == plan.batch
    assert cfg.train_cfg.max_iters == plan.steps == cfg.param_scheduler[-1].end
    assert (cfg.optim_wrapper.type == "AmpOptimWrapper") == on_gpu
    assert (cfg.optim_wrapper.optimizer.type, cfg.optim_wrapper.optimizer.lr) == ("AdamW", plan.rate)
    assert [hook.type for hook in cfg.custom_hooks if hook.type.endswith("EMAHook")] == ["EMAHook"]
    assert bool(plan.preset.weights) == ("mmlisa.PublishedWeights" in str(cfg.model.backbone.get("init_cfg")))
    for name, number in dict(side=plan.side, batch=plan.batch, steps=plan.steps, warm_up=plan.steps // 10).items():
        assert re.search(rf"# .+\.\n{name} = {number}\n", text)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        MODELS.build(cfg.model)


def test_heads_follow_the_objects(tmp_path):
    """No masks without outlines, and detections for twice the objects of an image."""
    dataset = make(has_masks=False)
    assert config_of(tmp_path, dataset, "hylisanet")[1].model.test_cfg.rcnn.max_per_img == 100
    dataset.samples[3].objects *= 70
    _, cfg, _ = config_of(tmp_path, dataset, "hylisanet")
    assert (cfg.model.roi_head.mask_head, cfg.test_evaluator.metric) == (None, ["bbox"])
    assert cfg.model.test_cfg.rcnn.max_per_img == 140
    assert {cfg.val_evaluator.type, cfg.test_evaluator.type} == {"mmlisa.CocoMetric"}
    assert cfg.model.train_cfg.rcnn.sampler.num == PRESETS["detection"]["hylisanet"].regions


def test_a_detector_that_cannot_do_without_masks_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"--model '.*rtmdet_ins.*outlines"):
        config_of(tmp_path, make(has_masks=False), config_path("rtmdet_ins_ivit_t_300e_coco.py"), "")


def test_the_number_of_classes_reaches_a_cascade_and_class_weights():
    def model(number):
        loss = dict(type="SeesawLoss", num_classes=number)
        weights = dict(class_weight=[1.0] * number + [0.1])
        return dict(head=[dict(num_classes=number, loss=loss), dict(num_classes=number)], decode_head=weights)

    assert _class_counts(model(80), 2) == model(2)


@pytest.mark.parametrize("weights", ["", "own.pth"])
def test_weights_keep_the_image_size_that_they_were_trained_at(tmp_path, weights):
    plan, cfg, _ = config_of(tmp_path, make(), "hylisanet", weights)
    shipped = Config.fromfile(config_path(plan.preset.config)).model.backbone.image_size
    assert shipped != plan.side
    assert cfg.model.backbone.image_size == (shipped if weights else plan.side)
    assert cfg.model.get("init_cfg", {}).get("source", "") == weights
    assert config_of(tmp_path, make(), "flatten-swin-t", "")[1].model.backbone.init_cfg is None


@pytest.mark.parametrize("model", ["dinov2-s", "hylisanet"])
def test_a_frozen_backbone_needs_weights_of_its_own(tmp_path, model):
    plan = plan_of(make("segmentation"), model=model, weights="own.pth", freeze=True)
    texts = write_configs(plan, make("segmentation"), tmp_path)
    (tmp_path / "config.py").write_text(texts["config.py"])
    with DefaultScope.overwrite_default_scope("mmseg"):
        backbone = MODELS.build(Config.fromfile(tmp_path / "config.py").model.backbone).train()
    assert {name.split(".")[0] for name, value in backbone.named_parameters() if value.requires_grad} <= {
        "norm",
        "norms",
    }
    with pytest.raises(UserError, match=r"--freeze: the backbone of hylisanet .*--weights"):
        plan_of(make("segmentation"), model="hylisanet", freeze=True)


def test_images_are_padded_to_the_coarsest_maps_stride(tmp_path):
    """DINOv2's patches of 14 pixels make maps of up to 56 pixels."""
    plan, cfg, _ = config_of(tmp_path, make(), "dinov2-s", "own.pth")
    assert (plan.side, cfg.model.data_preprocessor.pad_size_divisor) == (392, 56)
    plan, cfg, _ = config_of(tmp_path, make("segmentation"), "dinov2-s", "own.pth")
    assert (plan.side % 56, cfg.model.data_preprocessor.test_cfg.size_divisor) == (0, 56)


def test_a_detector_on_tiles_has_the_parameters_of_the_plain_one(tmp_path):
    pytest.importorskip("mmdet")
    _, cfg, text = config_of(tmp_path, make(size=(4000, 3000)), "hylisanet", tile=320)
    plain = Config.fromfile(tmp_path / "plain.py")
    assert re.search(r"# Side of the tiles; chosen by --tile\.\nside = 320\n", text)
    with DefaultScope.overwrite_default_scope("mmdet"):
        tiled, whole = MODELS.build(cfg.model), MODELS.build(plain.model)
    assert tiled.state_dict().keys() == whole.state_dict().keys()
    train, *tests = (cfg[f"{split}_dataloader"].dataset.pipeline for split in ("train", "val", "test"))
    assert "mmlisa.RandomTile" in [step.type for step in train]
    assert not any("Resize" in step.type for pipeline in (train, *tests) for step in pipeline)
    assert plain.test_dataloader.dataset.pipeline[1].type == "Resize"


def test_a_segmentor_slides_over_tiles(tmp_path):
    _, cfg, _ = config_of(tmp_path, make("segmentation", size=(4000, 3000)), "hylisanet", tile=320)
    assert cfg.model.test_cfg == dict(mode="slide", crop_size=(320, 320), stride=(256, 256))
    assert not any("Resize" in step.type for step in cfg.train_pipeline + cfg.test_pipeline)
