"""Stock configs of the libraries, exported and run by onnxruntime, equal the libraries' own ``predict``."""

import pytest
import torch

from export_table import CONFIGS, measure

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(torch.__version__ < "2.8", reason="exports need PyTorch 2.8")
REFUSED = {
    "centernet_r18": "CenterNetHead",
    "efficientnet": "EfficientNetCenterCrop",
    "fovea": "FoveaHead",
    "mask2former": "Mask2Former",
    "paa": "PAAHead",
    "sparse": "SparseRoIHead",
    "tood": "TOODHead",
    "yolov3": "YOLOV3Head",
}
EVERY_COMMIT = ("rtmdet_tiny", "mobilenet-v3")  # test_whole_models.py exports a segmentor


def rows():
    for library, names in CONFIGS.items():
        for name in names:
            marks = () if any(part in name for part in EVERY_COMMIT) else pytest.mark.nightly
            yield pytest.param(library, name, marks=marks, id=name.split("/")[-1])


@pytest.mark.parametrize(("library", "name"), rows())
def test_stock_configs(library, name, tmp_path):
    row = measure(library, name, tmp_path)
    for part, reason in REFUSED.items():
        if part in name:
            assert reason in row["reason"]
            return
    assert row["scores"] < 1e-3
    assert (library == "mmdet") == (row["boxes"] is not None)
    assert row["boxes"] is None or row["boxes"] < 0.1
