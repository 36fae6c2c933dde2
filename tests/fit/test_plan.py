"""The numbers of a plan follow from the data, and the config that is written builds."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from mmseg.structures import SegDataSample

from helpers import folders
from mmlisa import config_path
from mmlisa.datasets.folder import Dataset, Sample
from mmlisa.fit.plan import PRESETS, adjust, choose_preset, make_plan, write_config

PROBE = dict(seconds_per_image=0.5, per_image=2**20, fixed=0, available=2**30, unavailable="")


def make(task="detection", number=100, size=(640, 480), side=48.0, has_masks=True):
    rng = np.random.default_rng(0)
    samples = []
    for index in range(number):
        objects = [dict(category_id=0, bbox=[0, 0, side, side])] if task == "detection" else []
        sample = Sample(f"{index}.jpg", "val" if index % 5 == 0 else "train", size, objects, f"{index}.png", index % 3)
        sample.hash = rng.integers(0, 256, 32, dtype=np.uint8)
        samples.append(sample)
    return Dataset(Path("/data/animals"), "COCO", task, folders.CLASSES, samples, has_masks=has_masks)


@pytest.mark.parametrize(
    ("size", "side", "on_gpu", "expected"),
    [
        ((640, 480), 48, True, 640),  # objects have the 48 pixels
        ((640, 480), 30, True, 640),  # never above the images' own
        ((2000, 1500), 144, True, 672),  # 2000 * 48 / 144
        ((4000, 3000), 48, True, 1344),  # the most on a GPU, on multiples of 32
        ((4000, 3000), 400, True, 512),  # the least
        ((4000, 3000), 48, False, 384),
        ((208, 160), 50, False, 192),
        ((100, 80), 50, False, 96),
    ],
)
def test_side_by_the_sizes_of_objects(size, side, on_gpu, expected):
    dataset = make(size=size, side=side)
    preset, _ = choose_preset(dataset, "auto", None, on_gpu)
    assert make_plan(dataset, preset, on_gpu).side == expected
    assert make_plan(dataset, preset, on_gpu, side=300).side == 288


@pytest.mark.parametrize(
    ("task", "size", "on_gpu", "expected"),
    [
        ("detection", (640, 480), False, "hylisanet"),
        ("detection", (640, 480), True, "flatten-swin-t"),
        ("detection", (1600, 1200), True, "ivit-t"),
        ("segmentation", (640, 480), True, "flatten-swin-t"),
        ("classification", (300, 300), False, "hylisanet"),
    ],
)
def test_model_by_device_and_size(task, size, on_gpu, expected):
    dataset = make(task, size=size)
    assert choose_preset(dataset, "auto", None, on_gpu)[0] == PRESETS[task][expected]
    assert choose_preset(dataset, "hylisanet", None, on_gpu)[0] == PRESETS[task]["hylisanet"]


def test_any_shipped_config_is_a_model():
    preset, _ = choose_preset(make(), "retinanet_flatten_swin_demo.py", "swin.pth", False)
    assert (preset.config, preset.weights) == ("retinanet_flatten_swin_demo.py", "swin.pth")
    hosted, _ = choose_preset(make(), "mask_rcnn_hylisanet_s_host_1x_coco.py", None, False)
    assert hosted.weights == "timm:caformer_s36.sail_in1k"
    assert choose_preset(make(), "mask_rcnn_hylisanet_s_1x_coco.py", None, False)[0].weights == ""
    with pytest.raises(ValueError, match=r"is a config for segmentation; .* is for detection: choose one of hylisanet"):
        choose_preset(make(), "upernet_flatten_swin_t_160k_ade20k.py", None, False)
    with pytest.raises(ValueError, match=r"--model 'yolo' is neither one of hylisanet, .* nor a shipped config"):
        choose_preset(make(), "yolo", None, False)


def test_a_distilled_classifier_is_refused():
    message = (
        r"host_30e_imagenet\.py' is distilled from a teacher for other classes; choose one of hylisanet, .* without a"
    )
    with pytest.raises(ValueError, match=message):
        choose_preset(make("classification"), "classifier_ivit_t_host_30e_imagenet.py", None, False)


def test_sizes_of_objects_count_in_their_images():
    """Half of the images have twice the size, and objects of twice the size."""
    dataset = make(size=(800, 600), side=60)
    for sample in dataset.samples[::2]:
        sample.size = (1600, 1200)
        sample.objects[0]["bbox"] = [0, 0, 120, 120]
    preset, _ = choose_preset(dataset, "auto", None, True)
    assert make_plan(dataset, preset, True).side == 640  # 800 * 48 / 60, and 1600 * 48 / 120


def test_crowds_have_no_say_in_the_side():
    dataset = make(size=(2000, 1500), side=144)
    for sample in dataset.samples:
        sample.objects += [dict(category_id=0, bbox=[0, 0, 20, 20], iscrowd=1)] * 3
    assert make_plan(dataset, PRESETS["detection"]["flatten-swin-t"], True).side == 672


def test_objects_that_become_too_small_are_reported():
    dataset = make(size=(4000, 3000), side=48)  # 384 / 4000 of that is 5 pixels
    make_plan(dataset, PRESETS["detection"]["hylisanet"], False)
    assert re.search(r"smaller than 5 pixels.* cut the images into tiles, or give a larger --size", dataset.notes[-1])
    fine = make(size=(640, 480), side=48)
    make_plan(fine, PRESETS["detection"]["hylisanet"], False)
    assert not fine.notes


def test_steps_rate_and_warm_up():
    dataset, preset = make(), PRESETS["detection"]["hylisanet"]
    plan = make_plan(dataset, preset, False)
    assert (plan.batch, plan.steps, plan.warm_up, plan.rate, plan.interval) == (4, 400, 40, 1.5e-3, 100)
    plan = make_plan(dataset, preset, False, batch=2, epochs=3)  # 80 training images
    assert (plan.batch, plan.steps, plan.warm_up, plan.rate) == (2, 120, 12, 7.5e-4)
    assert make_plan(make(number=4000), preset, False).steps == 6 * 800


def test_workers_are_those_of_the_processors_that_a_scheduler_gives(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(6), raising=False)
    assert make_plan(make(), PRESETS["detection"]["hylisanet"], False).workers == 4


def test_a_probe_sets_batch_and_length():
    dataset, preset = make(), PRESETS["detection"]["hylisanet"]
    plan = make_plan(dataset, preset, False)
    adjust(plan, PROBE, None, keep_batch=False)
    assert (plan.batch, plan.steps) == (4, 400)
    adjust(plan, {**PROBE, "available": 3 * 2**20}, None, keep_batch=False)  # two images of a MiB fit
    assert (plan.batch, plan.steps, plan.rate) == (2, 800, 7.5e-4)  # as many images
    assert "the most that fits" in plan.reasons["batch"]
    assert ", as many images as in 400 steps of 4; about " in plan.reasons["steps"]
    plan = make_plan(dataset, preset, False)
    adjust(plan, {**PROBE, "available": 6 * 2**20, "fixed": 3 * 2**20}, None, keep_batch=False)
    assert plan.batch == 2  # beside the weights
    plan = make_plan(dataset, preset, False)
    adjust(plan, {**PROBE, "available": 0}, None, keep_batch=True)
    assert plan.batch == 4
    adjust(plan, PROBE, 10, keep_batch=True)
    assert plan.steps == 0.75 * 600 / (4 * 0.5)


@pytest.mark.parametrize(("available", "keep_batch", "images"), [(0, False, "1 image"), (4, True, "4 images")])
def test_a_batch_beyond_the_memory_is_reported(available, keep_batch, images):
    plan = make_plan(make(), PRESETS["detection"]["hylisanet"], False)
    words = adjust(plan, {**PROBE, "available": available * 2**20}, None, keep_batch=keep_batch)
    assert words.startswith(f"warning: a step on {images} may need more memory than there is: 1 MiB an image")
    assert adjust(plan, PROBE, None, keep_batch=keep_batch) == ""


def test_number_of_epochs_stays_with_a_smaller_batch():
    plan = make_plan(make(), PRESETS["detection"]["hylisanet"], False, epochs=2)
    assert plan.steps == 40
    adjust(plan, {**PROBE, "available": 3 * 2**20}, None, keep_batch=False)
    assert (plan.batch, plan.steps) == (2, 80)


def test_a_segmentation_trains_on_two_images_or_more():
    plan = make_plan(make("segmentation"), PRESETS["segmentation"]["flatten-swin-t"], False)
    adjust(plan, {**PROBE, "available": 2**20}, None, keep_batch=False)
    assert plan.batch == 2


def heads_of(model):
    """``num_classes`` of all parts of a model's config."""
    for key, part in model.items():
        if isinstance(part, dict) and not key.startswith("loss"):
            if "num_classes" in part:
                yield part["num_classes"]
            yield from heads_of(part)


@pytest.mark.parametrize(("task", "model"), [(task, model) for task, presets in PRESETS.items() for model in presets])
@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_the_config_has_the_plan_and_builds(tmp_path, task, model, on_gpu):
    dataset = make(task)
    preset, reason = choose_preset(dataset, model, None, on_gpu)
    plan = make_plan(dataset, preset, on_gpu)
    plan.reasons["model"] = reason
    text = write_config(plan, dataset, tmp_path, "a title", "a start")
    (tmp_path / "config.py").write_text(text)
    assert max(map(len, text.splitlines())) <= 170
    cfg = Config.fromfile(tmp_path / "config.py")
    assert set(heads_of(cfg.model)) == {3}
    assert cfg.train_dataloader.batch_size == plan.batch
    assert cfg.optim_wrapper.optimizer.lr == plan.rate
    assert cfg.train_cfg.max_iters == plan.steps == cfg.param_scheduler[-1].end
    assert (cfg.optim_wrapper.type == "AmpOptimWrapper") == on_gpu
    assert {"EMAHook", "EarlyStoppingHook"} <= {hook.type for hook in cfg.custom_hooks}
    assert cfg.train_dataloader.dataset.metainfo.classes == tuple(folders.CLASSES)
    assert bool(preset.weights) == ("mmlisa.PublishedWeights" in str(cfg.model.backbone.get("init_cfg")))
    for number in (plan.side, plan.batch, plan.steps, plan.warm_up, plan.interval, plan.workers):
        assert re.search(rf"# .+\n\w+ = {number}\n", text)  # each number is explained above it
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        MODELS.build(cfg.model)


def test_boxes_without_outlines_need_no_mask_head(tmp_path):
    dataset = make(has_masks=False)
    preset, reason = choose_preset(dataset, "hylisanet", None, False)
    plan = make_plan(dataset, preset, False)
    plan.reasons["model"] = reason
    (tmp_path / "config.py").write_text(write_config(plan, dataset, tmp_path, "", ""))
    cfg = Config.fromfile(tmp_path / "config.py")
    assert cfg.model.roi_head.mask_head is None
    assert cfg.test_evaluator.metric == ["bbox"]


def test_without_weights_the_backbone_is_not_initialised_from_them(tmp_path):
    dataset = make()
    preset = replace(PRESETS["detection"]["flatten-swin-t"], weights="")
    plan = make_plan(dataset, preset, False)
    plan.reasons["model"] = ""
    (tmp_path / "config.py").write_text(write_config(plan, dataset, tmp_path, "", ""))
    assert Config.fromfile(tmp_path / "config.py").model.backbone.init_cfg is None


@pytest.mark.parametrize("weights", ["", "own.pth"])
def test_weights_keep_the_image_size_that_they_were_trained_at(tmp_path, weights):
    dataset, preset = make(), replace(PRESETS["detection"]["hylisanet"], weights=weights)
    plan = make_plan(dataset, preset, False)
    plan.reasons["model"] = ""
    (tmp_path / "config.py").write_text(write_config(plan, dataset, tmp_path, "", ""))
    cfg, shipped = Config.fromfile(tmp_path / "config.py"), Config.fromfile(config_path(preset.config))
    assert shipped.model.backbone.image_size != plan.side
    assert cfg.model.backbone.image_size == (shipped.model.backbone.image_size if weights else plan.side)
    assert cfg.load_from == (weights or None)


def test_formats_that_the_loader_must_be_told_of(tmp_path):
    dataset = make()
    dataset.samples[0].format, dataset.samples[1].format = "TIFF", "PNG"
    preset, reason = choose_preset(dataset, "hylisanet", None, False)
    plan = make_plan(dataset, preset, False)
    plan.reasons["model"] = reason
    (tmp_path / "config.py").write_text(write_config(plan, dataset, tmp_path, "", ""))
    cfg = Config.fromfile(tmp_path / "config.py")
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        assert loader.dataset.pipeline[0] == dict(
            type="mmlisa.LoadImageFromFile", formats=["BMP", "JPEG", "MPO", "PNG", "PPM", "TIFF"]
        )


def config_of(tmp_path, dataset, model):
    preset, reason = choose_preset(dataset, model, "", False)
    plan = make_plan(dataset, preset, False)
    plan.reasons["model"] = reason
    (tmp_path / "config.py").write_text(write_config(plan, dataset, tmp_path, "", ""))
    return plan, Config.fromfile(tmp_path / "config.py")


def test_rates_rules_and_averages(tmp_path):
    plan, cfg = config_of(tmp_path, make(), "hylisanet")
    assert cfg.param_scheduler[-1].eta_min == pytest.approx(plan.rate / 100, rel=0.01)
    assert cfg.default_hooks.checkpoint.rule == cfg.custom_hooks[-1].rule == "greater"
    assert cfg.custom_hooks[-2].momentum == pytest.approx(min(0.5, 20 / plan.steps), rel=0.01)


def test_a_cascade_learns_the_classes_in_every_stage(tmp_path):
    _, cfg = config_of(tmp_path, make(), "cascade_mask_rcnn_flatten_swin_t_3x_coco.py")
    stages = cfg.model.roi_head.bbox_head
    assert [stage.num_classes for stage in stages] == [3] * 3
    assert [stage.bbox_coder.target_stds[0] for stage in stages] == [0.1, 0.05, 0.033]
    with DefaultScope.overwrite_default_scope("mmdet"):
        MODELS.build(cfg.model)


def test_one_average_of_the_weights(tmp_path):
    """Two would exchange their weights with each other at every validation."""
    _, cfg = config_of(tmp_path, make(), "picodet_castling_lcnet_s_416_coco.py")
    assert [hook.type for hook in cfg.custom_hooks if hook.type.endswith("EMAHook")] == ["EMAHook"]


def test_mask2formers_weights_of_classes(tmp_path):
    _, cfg = config_of(tmp_path, make("segmentation"), "mask2former_castling_vit_b_160k_ade20k.py")
    assert cfg.model.decode_head.loss_cls.class_weight == [1.0, 1.0, 1.0, 0.1]


@pytest.mark.parametrize(
    ("task", "options", "model", "message"),
    [
        ("detection", {}, "mask2former_hylisanet_s_50e_coco.py", "a Mask2Former is not planned from a folder"),
        (
            "classification",
            {},
            "classifier_lisanet_i_60e_something_v2.py",
            "VideoClassifier is not planned from a folder",
        ),
        (
            "detection",
            dict(has_masks=False),
            "rtmdet_ins_hylisanet_s_300e_coco.py",
            "learns masks, and the objects .* boxes only",
        ),
    ],
)
def test_models_that_a_folder_cannot_train(task, options, model, message):
    with pytest.raises(ValueError, match=message):
        choose_preset(make(task, **options), model, None, False)


def test_masks_are_loaded_for_a_head_that_learns_them(tmp_path):
    _, cfg = config_of(tmp_path, make(), "rtmdet_ins_hylisanet_s_300e_coco.py")
    assert cfg.test_evaluator.metric == ["bbox", "segm"]


def test_a_batch_leaves_a_fifth_of_the_memory():
    plan = make_plan(make(), PRESETS["detection"]["hylisanet"], False)
    adjust(plan, {**PROBE, "available": 4 * 2**20}, None, keep_batch=False)
    assert plan.batch == 2


def test_long_images_are_padded_to_a_side_that_networks_take(tmp_path):
    _, cfg = config_of(tmp_path, make("segmentation"), "hylisanet")
    with DefaultScope.overwrite_default_scope("mmseg"):
        prepare = MODELS.build(cfg.model.data_preprocessor)
    found = prepare({"inputs": [torch.zeros(3, 20, 320)], "data_samples": [SegDataSample()]})
    assert found["inputs"].shape[2:] == (32, 320)


def test_rates_are_those_of_adamw(tmp_path):
    """iViT's classifiers are trained by LAMB, whose rate is the share of a weight that a step changes."""
    for model, shipped in (("ivit-t", "mmlisa.Lamb"), ("flatten-swin-t", "AdamW")):
        plan, cfg = config_of(tmp_path, make("classification"), model)
        assert Config.fromfile(config_path(plan.preset.config)).optim_wrapper.optimizer.type == shipped
        assert cfg.optim_wrapper.optimizer.type == "AdamW"
        assert cfg.optim_wrapper.optimizer.lr == plan.rate
    assert (
        "momentum" not in config_of(tmp_path, make(), "picodet_castling_lcnet_s_416_coco.py")[1].optim_wrapper.optimizer
    )


def test_no_batch_is_resized_to_the_recipes_size(tmp_path):
    _, cfg = config_of(tmp_path, make(), "picodet_castling_lcnet_s_416_coco.py")
    assert cfg.model.data_preprocessor.batch_augments is None
