"""A folder with the image of :mod:`helpers.coco`."""

import cv2
import numpy as np
import pytest


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "a.png"), np.zeros((30, 40, 3), np.uint8))
    return tmp_path
