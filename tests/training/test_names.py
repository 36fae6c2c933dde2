"""Top-level names of configs that nothing reads."""

import inspect
import re
import warnings

import pytest
from mmengine.config import Config
from mmengine.runner import FlexibleRunner, Runner

from mmlisa.training.names import READ, check_options, warn_of_names


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("load_form", "load_from"),
        ("optim_wraper.optimizer.lr", "optim_wrapper"),
        ("custom_hook", "custom_hooks"),
        ("max_epoch", "max_epochs"),  # a variable of the config
        ("optimizer.lr", r"optim_wrapper\.optimizer"),  # before MMEngine
        ("batch_size", r"train_dataloader\.batch_size"),
    ],
)
def test_an_option_that_nothing_reads_is_refused_with_the_closest_name(key, meant):
    with pytest.raises(ValueError, match=rf"--cfg-options: '{key.partition('.')[0]}' .*did you mean {meant}\?"):
        check_options([key], {"model", "max_epochs"})


def test_an_option_that_resembles_no_name_is_refused_without_a_hint():
    with pytest.raises(ValueError, match=r"'xyz' .*nothing reads it$"):
        check_options(["xyz"], {"model"})


def test_options_of_known_names_pass():
    assert check_options(["load_from", "resume", "model.backbone.arch", "pretrained_by"], {"model"}) == ""


def test_an_option_for_a_variable_of_the_config_is_named():
    note = check_options(
        ["max_epochs", "train_pipeline.0.type", "model.type"], {"max_epochs", "train_pipeline", "model"}
    )
    assert "max_epochs, train_pipeline:" in note


@pytest.mark.parametrize("runner", [Runner, FlexibleRunner])
def test_all_that_mmengines_runners_read_is_known(runner):
    of_start = re.findall(r"\bcfg(?:\.get\(|\[)'(\w+)'", inspect.getsource(runner.from_cfg))
    later = re.findall(r"self\.cfg\.get\(\s*'(\w+)'", inspect.getsource(runner))
    assert len(of_start) > 20
    assert {*of_start, *later} <= READ


def warned(folder, text, base=None) -> list[str]:
    """Warnings of a config file, and of its line."""
    if base is not None:
        (folder / "base.py").write_text(base)
        text = f'_base_ = "base.py"\n{text}'
    path = folder / "config.py"
    path.write_text(text)
    cfg = Config.fromfile(path)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn_of_names(path, cfg, cfg.text)
    assert all(each.filename == str(path) for each in seen)
    return [f"{each.lineno}: {each.message}" for each in seen]


def test_unused_variables_close_to_a_known_name_are_named(tmp_path):
    assert warned(tmp_path, "model = dict()\nload_form = 'a.pth'") == [
        "2: nothing reads 'load_form'; did you mean load_from?"
    ]
    (former,) = warned(tmp_path, "optimizer = dict(lr=1)", base="model = dict()")
    assert re.match(r"2: nothing reads 'optimizer'; .*optim_wrapper\.optimizer", former)


@pytest.mark.parametrize(
    ("text", "base"),
    [
        (
            "test_dataloaders = [dict()]\ntest_dataloader = test_dataloaders[0]\nlearning_rate = 1",
            None,
        ),  # used; unlike any
        ("custom_hook = dict()\ncustom_hooks = [custom_hook]", None),
        ("load_form = 'b.pth'", "load_form = 'a.pth'"),  # the base has it
        ("data_root = '{{$DATA_ROOT:/data}}'\nport = '{{$PORT:3}}'", None),  # MMEngine's placeholders
        ("optimizer = dict(lr=1)", None),  # as MMEngine writes variables into a work dir
    ],
)
def test_a_file_may_have_variables_of_its_own(tmp_path, text, base):
    assert warned(tmp_path, text, base) == []


LOADER = """
train_pipeline = [dict(type="Load"), dict(type="Resize", scale=(64, 64))]
train_dataloader = dict(dataset=dict(type="RepeatDataset", dataset=dict(pipeline=train_pipeline)))
test_dataloader = dict(dataset=dict(pipeline=[dict(type="Load")]))
"""


def test_a_pipeline_that_its_loader_does_not_have_is_named(tmp_path):
    (stray,) = warned(tmp_path, "train_pipeline = [dict(type='Load')]", base=LOADER)
    assert re.match(r"2: train_dataloader\.dataset has another pipeline than train_pipeline", stray)


@pytest.mark.parametrize(
    "text",
    [
        "train_pipeline = [dict(type='Load')]\ntrain_dataloader = dict(dataset=dict(dataset=dict(pipeline=train_pipeline)))",
        "train_dataloader = dict(dataset=dict(dataset=dict(pipeline=[dict(type='Load')])))",  # the loader's is replaced
        "train_pipeline = [dict(type='Load'), dict(type='Resize', scale=[64, 64])]",  # equal
        "test_pipeline = []",
    ],
)
def test_a_pipeline_that_its_loader_has_passes(tmp_path, text):
    assert warned(tmp_path, text, base=LOADER) == []


def test_a_pipeline_of_another_librarys_config_is_equal(tmp_path):
    """MMEngine adds ``_scope_`` to what a child config reads."""
    base = '_base_ = "mmdet::retinanet/retinanet_r50_fpn_1x_coco.py"'
    assert warned(tmp_path, f"{base}\ntest_pipeline = _base_.test_pipeline") == []
