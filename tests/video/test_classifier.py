"""Views in, mean probabilities out; normalisation and mixing as for images."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import DefaultScope
from mmpretrain.models import ClsDataPreprocessor
from mmpretrain.structures import DataSample

from mmlisa.registry import MODELS
from mmlisa.video import VideoDataPreprocessor

NORM = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True)


def batch(views: int = 2, size: int = 4) -> dict:
    inputs = torch.randint(0, 256, (size, views, 3, 4, 32, 32), dtype=torch.uint8)
    return {"inputs": inputs, "data_samples": [DataSample().set_gt_label(i % 3) for i in range(size)]}


@pytest.fixture
def model():
    torch.manual_seed(0)
    arch = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(16,) * 4, num_heads=(1,) * 4)
    cfg = dict(
        type="mmlisa.VideoClassifier",
        data_preprocessor=dict(num_classes=3, **NORM),
        backbone=dict(type="mmlisa.LiSANet", arch=arch, image_size=(4, 32, 32), out_indices=[-1]),
        neck=dict(type="GlobalAveragePooling", dim=3),
        head=dict(
            type="LinearClsHead", num_classes=3, in_channels=16, loss=dict(type="CrossEntropyLoss"), init_cfg=None
        ),
    )
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        return MODELS.build(cfg).eval()


def test_normalisation_is_that_of_images():
    """Frame by frame mmpretrain's, from a tensor and from a list."""
    data = batch()
    ours = VideoDataPreprocessor(**NORM)(data)["inputs"]
    frame = ClsDataPreprocessor(**NORM)({"inputs": data["inputs"][:, 1, :, 2]})["inputs"]
    assert torch.equal(ours[:, 1, :, 2], frame)
    assert torch.equal(VideoDataPreprocessor(**NORM)({"inputs": list(data["inputs"])})["inputs"], ours)


@pytest.mark.parametrize("augment", ["Mixup", "CutMix"])
def test_all_frames_are_mixed_as_one_image_would_be(augment):
    augments = dict(augments=[dict(type=augment, alpha=1.0)], probs=[1.0])
    data, options = batch(), dict(num_classes=3, batch_augments=augments, **NORM)
    frame = {"inputs": data["inputs"][:, 1, :, 2].clone(), "data_samples": batch()["data_samples"]}
    mixed = []
    for preprocessor, inputs in ((VideoDataPreprocessor(**options), data), (ClsDataPreprocessor(**options), frame)):
        np.random.seed(3)
        torch.manual_seed(3)
        mixed.append(preprocessor(inputs, training=True))
    (video, image) = mixed
    torch.testing.assert_close(video["inputs"][:, 1, :, 2], image["inputs"])
    assert [s.gt_score.tolist() for s in video["data_samples"]] == [s.gt_score.tolist() for s in image["data_samples"]]
    assert video["data_samples"][0].gt_score.max() < 1
    assert not torch.equal(video["inputs"], VideoDataPreprocessor(**NORM)(data)["inputs"])


def test_a_prediction_is_the_mean_of_its_views_probabilities(model):
    data = batch(views=3)
    predictions = model.test_step(data)
    views = model.data_preprocessor(data)["inputs"]
    with torch.no_grad():
        each = torch.stack([model(views[:, v]).softmax(1) for v in range(3)])
    assert each.std(0).max() > 1e-4  # the views do differ
    for sample, expected in zip(predictions, each.mean(0), strict=True):
        torch.testing.assert_close(sample.pred_score, expected)
        assert sample.pred_label.tolist() == [expected.argmax()]
    assert [s.gt_label.item() for s in predictions] == [0, 1, 2, 0]


def test_every_view_is_a_sample_of_the_loss(model):
    data = batch(views=2)
    inputs = model.data_preprocessor(data, training=True)
    loss = model(**inputs, mode="loss")["loss"]
    logits = torch.stack([model(inputs["inputs"][:, v]) for v in range(2)])
    labels = torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(loss, (F.cross_entropy(logits[0], labels) + F.cross_entropy(logits[1], labels)) / 2)
    assert model(inputs["inputs"]).shape == (8, 3)
