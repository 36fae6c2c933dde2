"""Samples of the shipped video configs."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope

from mmlisa import config_path


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("classifier_hylisanet_s_110e_kinetics400.py", (2, 3, 16, 224, 224), (4, 3, 16, 224, 224)),
        ("classifier_lisanet_i_60e_something_v2.py", (1, 3, 8, 224, 224), (1, 3, 8, 224, 224)),
    ],
)
def test_samples(clips, name, train, test):
    cfg = Config.fromfile(config_path(name))
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        for loader, shape in ((cfg.train_dataloader, train), (cfg.val_dataloader, test)):
            loader.dataset.data_root = str(clips)
            dataset = DATASETS.build(loader.dataset)
            assert len(dataset) == 4
            sample = dataset[3]
            assert sample["inputs"].shape == shape
            assert sample["inputs"].dtype == torch.uint8
            assert 0 <= sample["data_samples"].gt_label < 2
