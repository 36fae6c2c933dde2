"""Exported files in the runtime: their results in the original image, and mistakes."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.exported import BOX, MASK, detector
from mmlisa import runtime
from mmlisa.runtime import decode_mask

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def test_the_import_needs_numpy_opencv_and_pillow_only():
    code = """
import sys
sys.modules |= dict.fromkeys(("torch", "torchvision", "timm", "mmengine", "mmcv", "onnxruntime", "supervision"))
import mmlisa
assert mmlisa.runtime.load and "mmlisa.ops" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_boxes_and_masks_are_those_of_the_original_image(tmp_path):
    model = runtime.load(detector(tmp_path / "model.onnx"))
    picture = np.zeros((128, 192, 3), np.uint8)  # twice the size of the resized one
    found = model.predict(picture)
    assert model.classes == ["cat", "dog"]
    np.testing.assert_allclose(found.boxes, 2 * np.float32([BOX]))
    assert found.labels.tolist() == [1]
    assert len(model.predict(picture, 0.1).boxes) == 2
    from mmdet.models.roi_heads.mask_heads.fcn_mask_head import _do_paste_mask

    box = torch.from_numpy(found.boxes)
    expected = _do_paste_mask(torch.from_numpy(MASK)[None, None], box, 128, 192, skip_empty=False)[0][0] >= 0.5
    assert (found.masks[0] == expected.numpy()).mean() > 0.9995
    assert 1000 < found.masks.sum() < 64 * 64


@pytest.fixture
def classifier(tmp_path):
    """A classifier of any batch whose probability is the mean of the image; ``calls`` has the shapes of its inputs."""
    model = runtime.load(detector(tmp_path / "model.onnx", task="classification", steps=[], mean=[0] * 3, std=[1] * 3))
    model.calls = []

    def run(images):
        model.calls.append(images.shape)
        return [images.mean((1, 2, 3))[:, None]]

    model.run, model.shape = run, ["n", 3, "h", "w"]
    return model


PICTURES = [np.full((8, side, 3), value, np.uint8) for value, side in enumerate((4, 4, 4, 6, 4), 1)]


def test_a_list_in_batches_of_one_size(classifier):
    found = classifier.predict(PICTURES, batch=2)
    assert [float(one.probabilities[0]) for one in found] == [1, 2, 3, 4, 5]
    assert classifier.calls == [(2, 3, 8, 4), (1, 3, 8, 4), (1, 3, 8, 6), (1, 3, 8, 4)]
    assert classifier.predict([]) == []


def test_an_iterator_is_read_as_its_predictions_are(classifier):
    read = []
    found = classifier.predict((read.append(i) or picture for i, picture in enumerate(PICTURES)), batch=2)
    assert not read
    assert float(next(found).probabilities[0]) == 1
    assert len(read) == 3  # the third begins the next batch
    assert len(list(found)) == 4


def test_an_open_file_is_one_image(classifier, tmp_path):
    Image.fromarray(PICTURES[2]).save(tmp_path / "a.png")
    with open(tmp_path / "a.png", "rb") as file:
        assert float(classifier.predict(file).probabilities[0]) == 3


def test_a_file_of_one_image_takes_them_singly(tmp_path):
    model = runtime.load(detector(tmp_path / "model.onnx"))
    assert [len(one.boxes) for one in model.predict(PICTURES, 0.0, batch=4)] == [2] * 5
    assert [len(one.boxes) for one in model.predict(PICTURES[:2], 0.0, tile=64)] == [2] * 2


def test_boxes_end_with_the_image(tmp_path):
    """The graph of a fixed size knows the padded image only. MMDetection's YOLOX does not clip."""
    for clip, bottom in ((True, 32), (False, 36)):
        model = runtime.load(detector(tmp_path / "m.onnx", shape=(1, 3, 64, 64), steps=[], clip=clip))
        np.testing.assert_allclose(model.predict(np.zeros((32, 40, 3), np.uint8)).boxes, [[8, 4, 40, bottom]])


@pytest.mark.parametrize(
    ("options", "pixel", "border"),
    [
        (dict(mean=[0] * 3, std=[1] * 3, border=[7] * 3), [1, 2, 3], [7, 7, 7]),
        (dict(mean=[0] * 3, std=[1] * 3, border=[0] * 3, channels="BGR"), [3, 2, 1], [0, 0, 0]),
        (dict(dtype="UINT8", uint8=True, channels="BGR"), [3, 2, 1], [124, 116, 104]),
    ],
)
def test_a_fixed_file_pads_what_is_smaller_and_refuses_what_is_larger(options, pixel, border, tmp_path):
    model = runtime.load(detector(tmp_path / "m.onnx", shape=(1, 3, 64, 96), steps=[], **options))
    image, size = model.prepare(np.full((50, 90, 3), (1, 2, 3), np.uint8))
    assert (image.shape, size) == ((1, 3, 64, 96), (50, 90))
    np.testing.assert_array_equal(image[0, :, :50, :90].reshape(3, -1).T, [pixel] * 50 * 90)
    assert image[0, :, 50, 0].tolist() == image[0, :, 0, 90].tolist() == border
    with pytest.raises(ValueError, match="--size 96 96"):
        model.prepare(np.zeros((65, 90, 3), np.uint8))


def test_an_exported_file_takes_tiles(tmp_path):
    model = runtime.load(detector(tmp_path / "model.onnx", steps=[]))
    found = model.predict(np.zeros((150, 100, 3), np.uint8), 0.3, tile=100)
    assert found.boxes.tolist() == [list(BOX), [BOX[0], BOX[1] + 50, BOX[2], BOX[3] + 50]]
    stored = runtime.load(detector(tmp_path / "tiled.onnx", steps=[], tile=100, overlap=0.5))
    assert stored.predict(np.zeros((150, 100, 3), np.uint8)).boxes.tolist() == found.boxes.tolist()
    assert len(stored.predict(np.zeros((250, 100, 3), np.uint8)).boxes) == 4, "its overlap counts, too"
    assert len(stored.predict(np.zeros((250, 100, 3), np.uint8), overlap=0).boxes) == 2
    assert len(stored.predict(np.zeros((150, 100, 3), np.uint8), tile=0).boxes) == 1
    first, second = map(decode_mask, found.masks)
    np.testing.assert_array_equal(second[50:], first[:100])


def test_wrong_files_are_named(tmp_path, monkeypatch):
    model = onnx.load(detector(tmp_path / "foreign.onnx"))
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    with pytest.raises(ValueError, match="metadata"):
        runtime.load(tmp_path / "foreign.onnx")
    with pytest.raises(ValueError, match="clips"):
        runtime.load(detector(tmp_path / "video.onnx", task="video")).predict(np.zeros((8, 8, 3), np.uint8))
    monkeypatch.setattr("mmlisa.runtime.model.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install onnxruntime"):
        runtime.load(tmp_path / "video.onnx")
