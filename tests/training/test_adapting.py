"""The config in which a backbone with another attention learns its own features."""

import pytest

from mmlisa.errors import UserError
from mmlisa.training.adapting import adaptation_config

OPTIONS = dict(weights=None, size=112, iters=80, work_dir="run")
ATTENTION = dict(type="LinearAngularAttention", residual=True)


def test_a_name():
    cfg = adaptation_config("dinov2-s", "photographs", ATTENTION, **OPTIONS)
    student, teacher = cfg.model.backbone, cfg.model.teacher
    assert student.attention == ATTENTION
    assert student.init_cfg.source == "timm:vit_small_patch14_dinov2.lvd142m"
    assert {key: value for key, value in student.items() if key in teacher} == teacher.to_dict()
    assert "attention" not in teacher
    assert cfg.train_dataloader.dataset.data_prefix == "photographs"
    assert cfg.train_dataloader.dataset.pipeline[1].scale == 112
    assert cfg.default_hooks.logger.interval == 2


def test_the_backbone_and_the_mean_of_a_config(tmp_path):
    (tmp_path / "detector.py").write_text(
        "model = dict(type='MaskRCNN', data_preprocessor=dict(type='DetDataPreprocessor', mean=[1, 2, 3], std=[4, 5, 6]),"
        " backbone=dict(type='mmlisa.DINOv3', arch='base', frozen_stages=3, drop_path_rate=0.1, out_indices=(3, 11),"
        " init_cfg=dict(type='mmlisa.PublishedWeights', source='own.pth', resample_patches=True)))"
    )
    cfg = adaptation_config(str(tmp_path / "detector.py"), "photographs", ATTENTION, **OPTIONS)
    assert cfg.model.teacher == dict(type="mmlisa.DINOv3", arch="base", out_indices=(3, 11))
    assert cfg.model.backbone.init_cfg == dict(type="mmlisa.PublishedWeights", source="own.pth", resample_patches=True)
    preprocessor = cfg.model.data_preprocessor
    assert (preprocessor.mean, preprocessor.std, preprocessor.to_rgb) == ([1, 2, 3], [4, 5, 6], False)


@pytest.mark.parametrize(
    ("text", "name"), [("x = 1", "model.backbone"), ("model = dict(backbone=dict())", "--weights")]
)
def test_a_config_without_a_teacher(text, name, tmp_path):
    (tmp_path / "config.py").write_text(text)
    with pytest.raises(UserError, match=name):
        adaptation_config(str(tmp_path / "config.py"), "photographs", ATTENTION, **OPTIONS)
