"""Objects and backgrounds of the demo data, cut out of photographs that scikit-image, scikit-learn and imaug ship.

masks.json holds the masks in the pixels of the photographs as COCO's run lengths. They come from measured disparity (motorcycle),
a threshold (coins, flower), imaug's segmentation map (quokka), or an outline drawn by hand (person, cat, cup, rocket).
"""

import json
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from pycocotools.mask import decode

from mmlisa.errors import UserError

CLASSES = ("cat", "coin", "cup", "flower", "motorcycle", "person", "quokka", "rocket")  # sorted, as class folders are
PALETTE = [
    (255, 127, 0), (0, 200, 210), (150, 90, 230), (255, 105, 180), (31, 120, 180), (220, 20, 60), (51, 160, 44),
    (255, 221, 51),
]  # fmt: skip
# scikit-image's photographs with objects; scikit-learn and imaug have those of the flower and the quokka.
_PHOTOGRAPHS = {"cat": "chelsea.png", "cup": "coffee.png", "coin": "coins.png", "motorcycle": "motorcycle_left.png"}
_PHOTOGRAPHS |= dict.fromkeys(("person", "rocket"), "astronaut.png")


@lru_cache(1)
def _sources() -> tuple[Path, dict[str, np.ndarray]]:
    """Return scikit-image's data folder, and the pictures of scikit-learn and imaug, RGB."""
    try:
        import imgaug.data
        import skimage.data
        from sklearn.datasets import load_sample_images
    except ImportError as error:
        shipped = "pictures shipped with scikit-image, scikit-learn and imaug"
        text = f"the demo data are cut out of {shipped}, and '{error.name}' is missing: pip install 'mmlisa[demo]'"
        raise UserError(text) from error
    china, flower = load_sample_images().images
    return Path(skimage.data.__file__).parent, {"china": china, "flower": flower, "quokka": imgaug.data.quokka()}


def _read(file: str) -> np.ndarray:
    with Image.open(_sources()[0] / file) as image:  # not cv2, which warns of the colour profiles in these files
        return np.asarray(image.convert("RGB"))


def _cut(image: np.ndarray, mask: np.ndarray, max_side: int = 256) -> np.ndarray:
    """Return the cropped object as premultiplied RGBA in [0, 1], its longer side at most ``max_side``: ``[h, w, 4]``, float32."""
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    # The outermost pixel of a cut-out contains old background.
    mask = cv2.erode(mask, disk, borderType=cv2.BORDER_REPLICATE).astype(np.float32)[..., None]
    x, y, w, h = cv2.boundingRect(mask.astype(np.uint8))
    cutout = np.concatenate([image / np.float32(255) * mask, mask], -1)[y : y + h, x : x + w]
    scale = min(1, max_side / max(h, w))
    cutout = cv2.resize(cutout, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    # Keep the largest piece with its soft rim; thin parts may have come off.
    _, pieces, stats, _ = cv2.connectedComponentsWithStats((cutout[..., 3] >= 0.5).astype(np.uint8))
    body = (pieces == 1 + np.argmax(stats[1:, cv2.CC_STAT_AREA])).astype(np.uint8)
    return cutout * cv2.dilate(body, disk)[..., None]


@lru_cache(1)
def load_objects() -> dict[str, list[np.ndarray]]:
    """Return the cut-outs of each class of :data:`CLASSES`, as premultiplied RGBA in [0, 1]: ``[h, w, 4]``, float32."""
    pictures = _sources()[1] | {name: _read(file) for name, file in _PHOTOGRAPHS.items()}
    masks = json.loads(Path(__file__).with_name("masks.json").read_text())
    return {name: [_cut(pictures[name], decode(mask)) for mask in masks[name]] for name in CLASSES}


@lru_cache(1)
def load_backgrounds() -> list[np.ndarray]:
    """Return textures and parts of photographs without the objects, RGB: ``[H, W, 3]``, uint8, each side at least 185 pixels."""
    china, flower, quokka = _sources()[1].values()
    whole = [_read(f"{name}.png") for name in ("brick", "grass", "gravel", "moon", "ihc")]
    parts = [flower[:340, 452:], _read("rocket.jpg")[:300, 340:560], quokka[:, 560:]]
    return [*whole, china, _read("hubble_deep_field.jpg"), *map(np.ascontiguousarray, parts)]
