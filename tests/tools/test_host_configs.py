"""From a host's weights: shipped configs, two iterations each, with random weights in timm's naming for the published ones."""

import re

import pytest
import timm
import torch

from helpers.layouts import make_coco_layout
from helpers.training import EPOCH, train
from mmlisa.datasets.demo import make_imagenet_layout

pytestmark = pytest.mark.nightly

CLASSIFIER = [
    "train_dataloader.batch_size=4",
    "model.teacher.model_name=swin_tiny_patch4_window7_224",
    "model.teacher.pretrained=False",
]
# Small images, and detections at any score, since a network of two iterations is sure of nothing.
DETECTOR = ["train_dataloader.dataset.pipeline.2.scale=(160,160)", "model.test_cfg.rcnn.score_thr=0"]


@pytest.mark.parametrize(
    ("config", "host", "make", "layout", "options", "carried"),
    [
        (
            "classifier_flatten_swin_t_host_30e_imagenet.py",
            "swin_tiny_patch4_window7_224",
            lambda root: make_imagenet_layout(root, 1),
            "imagenet",
            CLASSIFIER,
            r"96\.\d% of the parameters",
        ),
        (
            "mask_rcnn_hylisanet_s_host_1x_coco.py",
            "caformer_s36",
            lambda root: make_coco_layout(root, num_images=3, side=160),
            "coco",
            DETECTOR,
            r"19\.8% of the parameters",
        ),
    ],
)
def test_two_iterations_from_the_hosts_weights(config, host, make, layout, options, carried, tmp_path):
    make(tmp_path / layout)
    torch.save(timm.create_model(host).state_dict(), tmp_path / "host.pth")
    source = f"model.backbone.init_cfg.source={tmp_path / 'host.pth'}"
    done = train(config, tmp_path / layout, tmp_path / "work", *EPOCH, source, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    log = next((tmp_path / "work").glob("*/*.log")).read_text()
    assert re.search(carried, log)
    assert ("loss_distill" in log) == (layout == "imagenet")
    assert len(re.findall(r"Epoch\(train\).*loss: [\d.]+", log)) == 2
