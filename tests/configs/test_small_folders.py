"""The ADE20K and ImageNet configs read small folders in those layouts as they are."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATA_SAMPLERS, DATASETS, DefaultScope

from helpers.layouts import make_ade20k_layout
from mmlisa import config_path
from mmlisa.datasets.demo import make_imagenet_layout

CASES = {
    "mask2former_castling_vit_b_160k_ade20k.py": ("ade", 640),
    "upernet_hylisanet_b_160k_ade20k.py": ("ade", 512),
    "classifier_hylisanet_s_300e_imagenet.py": ("imagenet", 224),
    "classifier_lisanet_i_30e_imagenet384.py": ("imagenet", 384),
    "classifier_hylisanet_s_90e_imagenet21k.py": ("imagenet", 224),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("small")
    make_ade20k_layout(root / "ade", 2)
    make_imagenet_layout(root / "imagenet", 1)
    return root


@pytest.mark.parametrize("name", CASES)
def test_a_small_folder(name, folders):
    layout, size = CASES[name]
    cfg = Config.fromfile(config_path(name))
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        for loader in filter(None, (cfg.train_dataloader, cfg.val_dataloader)):
            loader.dataset.data_root = str(folders / layout)
            dataset = DATASETS.build(loader.dataset)
            sample = dataset[0]
            assert sample["inputs"].dtype == torch.uint8
            height, width = sample["inputs"].shape[1:]
            # Training crops at most this size out of an image of any scale; testing keeps the ratio.
            assert max(height, width) <= size if loader is cfg.train_dataloader else size in (height, width)
            if layout == "ade":
                assert len(dataset.metainfo["classes"]) == 150
                assert sample["data_samples"].gt_sem_seg.data.max() <= 255
            else:
                assert sample["inputs"].shape == (3, size, size)
                assert 0 <= sample["data_samples"].gt_label < len(dataset.CLASSES) == 8
        sampler = DATA_SAMPLERS.build(dict(cfg.train_dataloader.sampler, dataset=dataset))
        assert next(iter(sampler)) in range(len(dataset))
