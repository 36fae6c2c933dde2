"""The detector around tiles, and configs with tiles."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData
from pycocotools import mask as coco

from helpers import whole_models
from mmlisa import runtime
from mmlisa.export.metadata import describe
from mmlisa.export.whole import EndToEnd
from mmlisa.export.writing import write
from mmlisa.inference.predictor import read_sample
from mmlisa.inference.tiled import TiledDetector, plain_config, tile_config
from mmlisa.training.config import build_model, find_test_pipeline, load_config, type_name


def build(tile: int | None = None) -> torch.nn.Module:
    """The demo's Mask R-CNN with random weights, for images that are not resized, around tiles if ``tile`` is given."""
    cfg = load_config("mask_rcnn_hylisanet_demo.py")
    find_test_pipeline(cfg)[:] = [step for step in find_test_pipeline(cfg) if type_name(step) != "Resize"]
    torch.manual_seed(0)
    return build_model(tile_config(cfg, tile) if tile else cfg).eval()


def noise(height: int, width: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 255, (3, height, width), dtype=np.uint8))


def batch(image: torch.Tensor) -> dict:
    size = tuple(image.shape[1:])
    return dict(
        inputs=[image], data_samples=[DetDataSample(metainfo=dict(ori_shape=size, img_shape=size, scale_factor=(1, 1)))]
    )


def test_a_tile_that_holds_the_image_changes_nothing():
    plain, tiled = build(), build(tile=192)
    image = noise(150, 190)
    with torch.no_grad():
        (expected,), (found,) = (model.test_step(batch(image)) for model in (plain, tiled))
    assert len(expected.pred_instances) == 100
    for name in ("bboxes", "scores", "labels"):
        torch.testing.assert_close(found.pred_instances[name], expected.pred_instances[name], rtol=0, atol=0)
    for mask, dense in zip(found.pred_instances.masks, expected.pred_instances.masks, strict=True):
        np.testing.assert_array_equal(coco.decode(mask), dense.numpy())


def test_the_parameters_have_the_names_of_the_detector():
    plain, tiled = build(), build(tile=192)
    assert list(tiled.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in tiled.named_parameters()] == [name for name, _ in plain.named_parameters()]
    copied = deepcopy(tiled)  # as the hooks of averaged weights do
    assert copied.backbone is copied.detector.backbone is not tiled.backbone
    assert tiled.train().detector.training
    assert not tiled.eval().detector.training


def test_a_training_step_is_that_of_the_detector():
    image, losses = noise(64, 64), []
    for model in (build(), build(tile=64)):
        data = batch(image)
        data["data_samples"][0].gt_instances = InstanceData(
            bboxes=torch.tensor([[8.0, 8, 40, 40]]),
            labels=torch.tensor([0]),
            masks=BitmapMasks(np.ones((1, 64, 64)), 64, 64),
        )
        torch.manual_seed(0)
        losses.append(model.train()(**model.data_preprocessor(data, True), mode="loss")["loss_rpn_cls"])
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=0)


def test_a_pipeline_that_resizes_the_whole_image_is_refused():
    data = batch(noise(64, 64))
    data["data_samples"][0].set_metainfo(dict(ori_shape=(128, 128)))
    with pytest.raises(ValueError, match="resize"):
        build(tile=64).test_step(data)


def test_a_resize_of_the_pipeline_moves_to_the_tiles():
    cfg = tile_config(load_config("mask_rcnn_hylisanet_demo.py"), 96)
    assert cfg.model.resize == dict(type="Resize", scale=(192, 192), keep_ratio=True)
    assert [type_name(step) for step in find_test_pipeline(cfg)] == [
        "LoadImageFromFile",
        "LoadAnnotations",
        "PackDetInputs",
    ]
    assert tile_config(cfg, 128).model == {**cfg.model, "tile": 128}, "a config with tiles gets another size"
    plain, tiles = plain_config(cfg)
    assert (plain.to_dict(), tiles) == (
        load_config("mask_rcnn_hylisanet_demo.py").to_dict(),
        dict(tile=96, overlap=0.2),
    )
    assert tile_config(cfg, 0).to_dict() == plain.to_dict()
    assert tile_config(cfg, None, 0.5).model == {**cfg.model, "overlap": 0.5}
    assert tile_config(plain, None).to_dict() == plain.to_dict()
    cut, sample = build_model(cfg)._cut(
        torch.zeros(3, 300, 300, dtype=torch.uint8), DetDataSample(), np.array([10, 20, 106, 116])
    )
    assert tuple(cut.shape) == (3, 192, 192)
    assert (sample.ori_shape, sample.scale_factor) == ((96, 96), (2, 2))


def test_a_segmentor_gets_mmsegs_slide_mode():
    cfg = tile_config(load_config("semantic_fpn_hylisanet_demo.py"), 100, 0.25)
    assert cfg.model.test_cfg == dict(mode="slide", crop_size=(100, 100), stride=(75, 75))
    assert "Resize" not in map(type_name, find_test_pipeline(cfg))
    assert tile_config(cfg, 0).model.test_cfg.mode == "whole"


@pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")
def test_tiles_of_a_file_equal_those_of_the_tiled_detector(tmp_path):
    model, out = whole_models.build("mask_rcnn_hylisanet"), tmp_path / "model.onnx"
    module, cfg = EndToEnd(model), load_config("mask_rcnn_hylisanet_demo.py")
    write(module, out, (128, 128), metadata=describe(cfg, module, {}) | {"mmlisa_steps": "[]"})
    whole_models.put_on_lcnet(cfg)
    tiled = TiledDetector(cfg.model, tile=128, overlap=0.25).eval()
    tiled.load_state_dict(model.state_dict())
    picture = whole_models.image((230, 300))[0].permute(1, 2, 0).numpy().astype(np.uint8)
    inputs = torch.from_numpy(np.ascontiguousarray(picture[..., ::-1].transpose(2, 0, 1)))
    sample = DetDataSample(metainfo=dict(img_shape=(230, 300), ori_shape=(230, 300), scale_factor=(1.0, 1.0)))
    with torch.no_grad():
        (expected,) = tiled.test_step({"inputs": [inputs], "data_samples": [sample]})
    middle = expected.pred_instances.scores.sort().values[100:300]
    threshold = float(middle[(gap := middle.diff().argmax()) : gap + 2].mean())  # far from each score
    expected = read_sample(expected, threshold)
    found = runtime.load(out).predict(picture, threshold, tile=128, overlap=0.25)
    assert len(found.boxes) == len(expected.boxes) > 50
    # Detections of equal scores may change places.
    distance = np.abs(found.boxes[:, None] - expected.boxes).max(axis=2)
    distance += np.abs(found.scores[:, None] - expected.scores) * 1e3 + (found.labels[:, None] != expected.labels)
    assert max(distance.min(axis=1).max(), distance.min(axis=0).max()) < 0.1
    masks = [np.stack([runtime.decode_mask(mask) for mask in one.masks]) for one in (found, expected)]
    differences = masks[0] != masks[1][distance.argmin(axis=1)]
    assert differences.sum() < 1e-3 * masks[0].sum()
