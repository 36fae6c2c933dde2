"""From a config to a runner. Silent mistakes are named before they cost time, also on a toy model with MMEngine's real runner."""

from copy import deepcopy
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import EMAHook
from mmengine.registry import DATASETS, MODELS
from torch import nn

from helpers.toy_runner import TEST, VALIDATION, ToyRegression, runner, toy_config
from mmlisa import config_path
from mmlisa.checkpoints import read_checkpoint
from mmlisa.errors import UserError
from mmlisa.models.backbones import LCNet
from mmlisa.training.runner import (
    CheckpointGuardHook,
    _check_categories,
    _prepare,
    build_runner,
    check_channels,
    check_classes,
    check_saved_classes,
    train,
)
from mmlisa.training.runner import test as run_test


def test_classes_that_the_annotations_do_not_have_are_refused():
    """mmdet's CocoDataset drops them, and its metric ends in an IndexError."""
    inner = SimpleNamespace(cat_ids=[1, 2], metainfo=dict(classes=("cat", "coins", "cup")), ann_file="train.json")
    message = r"train_dataloader\.dataset: only 2 of its 3 classes .*train\.json.*metainfo\.classes"
    for dataset in (inner, SimpleNamespace(dataset=inner), SimpleNamespace(datasets=[inner])):
        with pytest.raises(UserError, match=message):
            _check_categories(dataset, "train_dataloader.dataset")
    inner.cat_ids.append(3)
    _check_categories(SimpleNamespace(dataset=inner), "train_dataloader.dataset")
    _check_categories(SimpleNamespace(metainfo={}), "train_dataloader.dataset")


def test_heads_of_another_number_of_classes_are_named():
    cascade = [dict(num_classes=2), dict(num_classes=80), dict(num_classes=2)]
    model = dict(rpn_head=dict(num_classes=1), roi_head=dict(bbox_head=cascade, mask_head=dict(num_classes=1)))
    assert check_classes(model, None, "train_dataloader.dataset") == ""
    message = (
        r"bbox_head\.num_classes=80, model\.roi_head\.mask_head\.num_classes=1, but val_dataloader\.dataset .*: set 2"
    )
    with pytest.raises(ValueError, match=message):
        check_classes(model, ("a", "b"), "val_dataloader.dataset")
    model["roi_head"]["mask_head"]["num_classes"] = 2
    assert "bbox_head.num_classes=80" in check_classes(model, ("a", "b"), "train_dataloader.dataset")
    cascade[1]["num_classes"] = 2
    assert check_classes(model, ("a", "b"), "train_dataloader.dataset") == ""


@pytest.mark.parametrize(
    "config",
    [
        "mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py",
        "mmdet::panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py",
        "mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco.py",
        "mmdet::mm_grounding_dino/coco/grounding_dino_swin-t_finetune_16xb4_1x_coco.py",
        "mmseg::upernet/upernet_r50_4xb4-80k_ade20k-512x512.py",
    ],
)
def test_the_libraries_own_heads_fit_their_data(config):
    """Their configs, and the classes that their data sets name."""
    library = config.partition("::")[0]
    cfg = Config.fromfile(config_path(config))
    import_module(f"{library}.datasets")
    classes = DATASETS.get(f"{library}.{cfg.train_dataloader.dataset.type}").METAINFO["classes"]
    assert len(classes) > 10
    assert check_classes(cfg.model, classes, "train_dataloader.dataset") == ""


class Detector(nn.Module):
    def __init__(self, *channels):
        super().__init__()
        self.backbone = nn.Identity()
        self.backbone.feature_channels = channels


def test_a_neck_that_does_not_fit_the_backbone_is_refused():
    for takes in ([64, 128, 256], [64, 128]):
        with pytest.raises(ValueError, match=r"model\.neck\.in_channels"):
            check_channels(Detector(64, 128, 320), dict(neck=dict(type="FPN", in_channels=takes)))


@pytest.mark.parametrize(
    "neck",
    [
        dict(type="FPN", in_channels=[64, 128]),
        dict(type="YOLOV3Neck", in_channels=[128, 64]),  # takes the coarsest map first
        dict(type="CTResNetNeck", in_channels=128),  # reads the last map
        dict(type="GlobalAveragePooling"),
        [dict(type="GlobalAveragePooling"), dict(type="LinearNeck", in_channels=128, out_channels=32)],
        None,
    ],
)
def test_other_necks_pass(neck):
    check_channels(Detector(64, 128), dict(neck=neck))
    check_channels(nn.Identity(), dict(neck=dict(in_channels=[1])))  # another library's backbone


class ToyDetector(ToyRegression):
    """Its maps have stride 4, its head is for stride 8."""

    def __init__(self, **options):
        super().__init__(**options)
        self.backbone, self.bbox_head = nn.Conv2d(3, 3, 4, stride=4), nn.Module()
        self.bbox_head.prior_generator = SimpleNamespace(strides=[(8, 8)])

    def extract_feat(self, image):
        return [self.backbone(image)]


MODELS.register_module(module=ToyDetector, force=True)


def test_maps_are_compared_with_strides_when_a_runner_is_built(tmp_path):
    with pytest.raises(
        ValueError, match=r"model\.bbox_head takes 1 maps of strides 8, but model\.backbone .* strides 4"
    ):
        runner(tmp_path, model=dict(type="ToyDetector"))


def test_images_are_compared_with_the_network_before_a_training_and_a_test(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("mmlisa.training.runner.check_sizes", lambda model, dataset, split: seen.append(split))
    made = runner(tmp_path, iterations=1, **VALIDATION, **TEST)
    train(made)
    run_test(made)
    train(runner(tmp_path / "without", iterations=1))
    assert seen == ["val", "test"]


def test_non_finite_loss_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(FloatingPointError, match=r"iteration 4: .*loss_fit.*iter_2\.pth"):
        train(runner(tmp_path, model=dict(broken_at=4)))
    assert [p.name for p in tmp_path.glob("*.pth")] == ["iter_2.pth"]


def test_weights_that_another_process_broke_are_not_saved(tmp_path):
    """The own loss is finite, but the gradients are the mean over all processes."""
    stopped = runner(tmp_path)
    stopped.model.layer.weight.register_hook(lambda grad: grad * (float("nan") if stopped.iter == 3 else 1))
    with pytest.raises(FloatingPointError, match=r"iteration 4: layer\.weight"):
        train(stopped)
    assert [p.name for p in tmp_path.glob("*.pth")] == ["iter_2.pth"]


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (dict(train=3), r"num_classes=2, but train_dataloader\.dataset has 3 classes"),
        (dict(val=3), r"num_classes=2, but val_dataloader\.dataset has 3 classes"),
        (dict(test=3), r"num_classes=2, but test_dataloader\.dataset has 3 classes"),
        (dict(train=2, val=1), r"val_dataloader\.dataset: label 0 is 'class 1', and 'class 2'.*a class without images"),
    ],
)
def test_classes_are_compared_before_the_first_iteration(tmp_path, monkeypatch, classes, message):
    made = runner(tmp_path, **VALIDATION, **TEST)
    made.cfg.model.head = dict(num_classes=2)
    for split, number in classes.items():
        names = [f"class {number - i}" for i in range(number)]
        getattr(made, f"{split}_dataloader").dataset.metainfo = dict(classes=names)
    monkeypatch.setattr(ToyRegression, "train_step", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match=message):
        (run_test if "test" in classes else train)(made)


def test_a_checkpoint_with_extra_states_of_modules_is_saved(tmp_path):
    made = runner(tmp_path, iterations=2)
    made.model.register_state_dict_post_hook(
        lambda module, state, prefix, _: state.update({"_extra_state": {"scale": 1}})
    )
    train(made)
    assert (tmp_path / "iter_2.pth").exists()


def save(path, shape=(1, 4), prefix="layer.", **meta) -> str:
    state = {f"{prefix}weight": torch.zeros(shape), f"{prefix}bias": torch.zeros(1)}
    torch.save({"state_dict": state, "meta": meta}, path)
    return str(path)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"0 of 5 values match"):
        train(runner(tmp_path, load_from=save(tmp_path / "foreign.pth", prefix="other.")))


def guard(made) -> CheckpointGuardHook:
    return next(hook for hook in made.hooks if isinstance(hook, CheckpointGuardHook))


def test_another_shape_is_refused_unless_it_is_named(tmp_path, capfd):
    file = save(tmp_path / "wide.pth", shape=(3, 4))
    with pytest.raises(ValueError, match=r"layer\.weight is \[3, 4\] in the checkpoint"):
        train(runner(tmp_path, iterations=1, load_from=file))
    hooks = [dict(type="mmlisa.CheckpointGuardHook", may_differ=["layer.weight"])]
    train(runner(tmp_path, iterations=1, load_from=file, custom_hooks=hooks))
    assert "wide.pth: layer 1 of 5 values" in capfd.readouterr().out


def test_saved_checkpoints_state_the_options_of_the_backbone(tmp_path):
    made = runner(tmp_path, iterations=2)
    made.model.backbone = LCNet("x0.25")
    train(made)
    saved = read_checkpoint(tmp_path / "iter_2.pth")
    assert saved["meta"]["backbone"] == LCNet("x0.25").settings()


@pytest.mark.parametrize(
    ("classes", "difference"),
    [
        (["a", "b"], None),
        (["b", "a"], "label 0 is 'b' in it and 'a'"),
        (["a", "B"], "label 1 is 'B' in it and 'b'"),
        (["a", "b", "c"], "has only a, b"),
        ([], None),
    ],
)
def test_a_checkpoint_of_other_classes_is_not_tested(tmp_path, classes, difference):
    made = runner(tmp_path, load_from=save(tmp_path / "a.pth", dataset_meta=dict(classes=classes)), **TEST)
    made.test_dataloader.dataset.metainfo = dict(classes=("a", "b"))
    guard(made).whole = True
    if difference is None:
        assert run_test(made) == {"count": 7}
    else:
        with pytest.raises(ValueError, match=rf"a\.pth.*{difference}.*metainfo\.classes"):
            run_test(made)


def test_a_training_is_not_resumed_with_other_classes(tmp_path):
    made = runner(tmp_path, load_from=save(tmp_path / "a.pth", dataset_meta=dict(classes=["Cat"])), resume=True)
    made.train_dataloader.dataset.metainfo = dict(classes=["cat"])
    with pytest.raises(ValueError, match=r"label 0 is 'Cat' .*'cat' in train_dataloader"):
        train(made)


def test_a_part_of_a_checkpoints_classes_is_refused():
    def check(saved):
        check_saved_classes({"meta": {"dataset_meta": {"classes": saved}}}, ["dog", "cup"], "test", "a.pth")

    with pytest.raises(ValueError, match=r"a\.pth' was trained for cat, cup, dog, .* only dog, cup"):
        check(["cat", "cup", "dog"])
    for saved in ([], ["dog"], ["dog", "cup"], ["a", "b", "c"]):
        check(saved)


def test_the_console_shows_progress_without_dumps(tmp_path, capfd):
    train(runner(tmp_path, verbose=False))
    console = "".join(capfd.readouterr())
    assert "loss" in console
    assert "System environment" not in console
    (log,) = tmp_path.glob("*/*.log")
    assert "System environment" in log.read_text()


def guards(made) -> list[tuple[tuple[str, ...], bool]]:
    return [(h.may_differ, h.whole) for h in made.hooks if isinstance(h, CheckpointGuardHook)]


def test_the_callers_config_and_hooks_stay(tmp_path):
    hooks = [dict(type="mmlisa.CheckpointGuardHook", may_differ=["neck"])]
    cfg = toy_config(tmp_path, epochs=2, custom_hooks=hooks)
    before = deepcopy(cfg)
    assert guards(build_runner(cfg, may_differ=["head"])) == [(("neck",), False)]
    assert cfg.to_dict() == before.to_dict()
    # A test refuses what the training accepts.
    assert sorted(guards(build_runner(cfg, whole=True))) == [((), True), (("neck",), False)]
    assert all(Config.fromfile(dumped).custom_hooks == before.custom_hooks for dumped in tmp_path.glob("*.py"))


def test_processes_on_cpus_look_for_unused_parameters_as_on_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr("mmlisa.training.runner.get_device", lambda: "cpu")
    wrapped = [
        _prepare(Config(dict(launcher="pytorch", **options))).model_wrapper_cfg.find_unused_parameters
        for options in ({}, dict(find_unused_parameters=True))
    ]
    assert wrapped == [False, True]


def test_two_averages_are_refused(tmp_path):
    """At a validation, both would exchange their averages with the weights in the same order."""
    hooks = [dict(type="EMAHook"), dict(type="mmlisa.CycleEMAHook", cycle=40)]
    with pytest.raises(ValueError, match="custom_hooks has two EMA hooks"):
        runner(tmp_path, custom_hooks=hooks)
    assert any(isinstance(hook, EMAHook) for hook in runner(tmp_path, custom_hooks=hooks[:1]).hooks)


@pytest.mark.parametrize("split", ["train", "val"])
def test_data_without_an_image_are_refused(tmp_path, split):
    empty = dict(type="ToyPoints", length=0)
    if split == "train":
        made = runner(
            tmp_path, loader=dict(dataset=empty, sampler=dict(type="DefaultSampler", shuffle=False)), epochs=1
        )
    else:
        validation = {**VALIDATION, "val_dataloader": {**VALIDATION["val_dataloader"], "dataset": empty}}
        made = runner(tmp_path, **validation)
    with pytest.raises(UserError, match=f"{split}_dataloader.dataset"):
        train(made)
