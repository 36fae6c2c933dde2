"""Tiles of large images: where they lie, what they find once, and the detector around them."""

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData
from mmseg.models.segmentors import EncoderDecoder
from pycocotools import mask as coco

from helpers.exported import BOX, detector
from mmlisa.deploy import runtime
from mmlisa.deploy.runtime import Prediction, Tiles, decode_mask, encode_mask
from mmlisa.deploy.tiles import tile_config
from mmlisa.training.building import build_model
from mmlisa.training.config import find_test_pipeline, load_config, type_name

SIZES = [(640, 640), (641, 640), (100, 30), (300, 2000), (2000, 300), (1152, 1153), (1999, 1021)]


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


def find(tiles: Tiles, objects: list[tuple[np.ndarray, int]]) -> Prediction:
    """Predictions of a perfect detector: of each object (mask, class) what a tile shows, in an order of chance."""
    rng = np.random.default_rng(0)
    for index, (x1, y1, x2, y2) in enumerate(tiles.windows):
        seen = [(mask[y1:y2, x1:x2], label) for mask, label in objects if mask[y1:y2, x1:x2].any()]
        masks = np.array([mask for mask, _ in seen]).reshape(len(seen), y2 - y1, x2 - x1)
        boxes = np.array([box_of(mask) for mask in masks], np.float32).reshape(-1, 4)
        labels = np.array([label for _, label in seen], np.int64)
        tiles.add(index, Prediction(boxes, rng.random(len(seen), np.float32), labels, masks))
    return tiles.merge()


def box_of(mask: np.ndarray) -> list[int]:
    x, y, width, height = coco.toBbox(coco.encode(np.asfortranarray(mask, np.uint8)))
    return [x, y, x + width, y + height]


@pytest.mark.parametrize("size", SIZES)
def test_tiles_lie_where_mmsegs_slide_mode_has_them(size):
    """It asserts itself that they cover every pixel."""
    corners = []
    segmentor = SimpleNamespace(
        test_cfg=SimpleNamespace(stride=(512, 512), crop_size=(640, 640)),
        out_channels=1,
        encode_decode=lambda crop, _: corners.append(crop[0, :, [0, -1], [0, -1]].T.ravel().tolist()) or crop[:, :1],
    )
    image = torch.stack(torch.meshgrid(*map(torch.arange, size[::-1]), indexing="xy"))[
        None
    ].float()  # x, y of each pixel
    EncoderDecoder.slide_inference(segmentor, image, [{}])
    assert Tiles(size, 640, 0.2).windows.tolist() == [[x1, y1, x2 + 1, y2 + 1] for x1, y1, x2, y2 in corners]


@pytest.mark.parametrize("size", [(500, 700), (700, 500), (90, 1000), (1000, 90), (128, 128), (80, 70)])
def test_objects_are_found_once_with_whole_boxes_and_masks(size):
    rng = np.random.default_rng(sum(size))
    objects, taken = [], np.zeros(size, bool)
    for _ in range(150):
        height, width = np.minimum(rng.integers(4, [60, 60]) * rng.choice([1, 1, 1, 5]), np.array(size) - 1)
        y, x = rng.integers(np.array(size) - (height, width))
        mask = np.zeros(size, bool)
        mask[y : y + height, x : x + width] = rng.random((height, width)) < 0.9
        mask[y : y + height, x] = mask[y, x : x + width] = True
        mask[y + height - 1, x : x + width] = mask[y : y + height, x + width - 1] = True
        if not (mask & taken).any():
            taken |= mask
            objects.append((mask, int(rng.integers(3))))
    found = find(Tiles(size, 128, 0.25), objects)
    assert sorted(found.scores, reverse=True) == found.scores.tolist()
    expected = [(label, *box_of(mask)) for mask, label in objects]
    assert sorted(
        (label, *box) for box, label in zip(found.boxes.tolist(), found.labels.tolist(), strict=True)
    ) == sorted(expected)
    masks = {tuple(box): decode_mask(mask) for box, mask in zip(found.boxes.tolist(), found.masks, strict=True)}
    for mask, _ in objects:
        np.testing.assert_array_equal(masks[tuple(box_of(mask))], mask)


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


@pytest.mark.parametrize(("tile", "overlap", "name"), [(63, 0.2, "tile"), (64, 1.0, "overlap"), (64, -0.1, "overlap")])
def test_tiles_that_make_no_sense_are_refused(tile, overlap, name):
    with pytest.raises(ValueError, match=f"^{name}="):
        Tiles((100, 100), tile, overlap)


def test_a_resize_of_the_pipeline_moves_to_the_tiles():
    cfg = tile_config(load_config("mask_rcnn_hylisanet_demo.py"), 96)
    assert cfg.model.resize == dict(type="Resize", scale=(192, 192), keep_ratio=True)
    assert [type_name(step) for step in find_test_pipeline(cfg)] == [
        "LoadImageFromFile",
        "LoadAnnotations",
        "PackDetInputs",
    ]
    cut, sample = build_model(cfg)._cut(
        torch.zeros(3, 300, 300, dtype=torch.uint8), DetDataSample(), np.array([10, 20, 106, 116])
    )
    assert tuple(cut.shape) == (3, 192, 192)
    assert (sample.ori_shape, sample.scale_factor) == ((96, 96), (2, 2))


def test_a_segmentor_gets_mmsegs_slide_mode():
    cfg = tile_config(load_config("semantic_fpn_hylisanet_demo.py"), 100, 0.25)
    assert cfg.model.test_cfg == dict(mode="slide", crop_size=(100, 100), stride=(75, 75))
    assert "Resize" not in map(type_name, find_test_pipeline(cfg))


def test_an_exported_file_takes_tiles(tmp_path):
    model = runtime.load(detector(tmp_path / "model.onnx", steps=[]))
    found = model.predict(noise(150, 100).permute(1, 2, 0).numpy(), 0.3, tile=100)
    assert found.boxes.tolist() == [list(BOX), [BOX[0], BOX[1] + 50, BOX[2], BOX[3] + 50]]
    first, second = map(decode_mask, found.masks)
    np.testing.assert_array_equal(second[50:], first[:100])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_run_lengths_are_cocos(share):
    rng = np.random.default_rng(0)
    for height, width in rng.integers(1, 80, (30, 2)):
        mask = rng.random((height, width)) < share
        expected = coco.encode(np.asfortranarray(mask, np.uint8))
        assert encode_mask([(0, 0, mask)], mask.shape)["counts"] == expected["counts"].decode()
        np.testing.assert_array_equal(decode_mask(expected), mask)
    whole = np.zeros((500, 400), bool)
    whole[100:180, 200:280] = part = rng.random((80, 80)) < 0.5
    expected = coco.encode(np.asfortranarray(whole, np.uint8))["counts"].decode()
    assert encode_mask([(200, 100, part)], whole.shape)["counts"] == expected
