"""Objects and backgrounds of the demo data, cut out of photographs that scikit-image, scikit-learn and imaug ship.

The masks come from measured disparity (motorcycle), a threshold (coins, flower), imaug's segmentation map (quokka), or an outline
drawn by hand (person, cat, cup, rocket).
"""

import json
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

CLASSES = ("cat", "coin", "cup", "flower", "motorcycle", "person", "quokka", "rocket")  # sorted, as class folders are
PALETTE = [
    (255, 127, 0), (0, 200, 210), (150, 90, 230), (255, 105, 180), (31, 120, 180), (220, 20, 60), (51, 160, 44),
    (255, 221, 51),
]  # fmt: skip

# Outlines drawn by hand, (x, y) in the pixels of the photograph.
_OUTLINES: dict[str, list[list[int]]] = json.loads(Path(__file__).with_name("outlines.json").read_text())


def _sources() -> tuple[Path, dict[str, np.ndarray], np.ndarray]:
    """Return scikit-image's data folder, scikit-learn's and imaug's pictures (RGB), and the segmentation map of the quokka."""
    try:
        import imgaug.data
        import skimage.data
        from sklearn.datasets import load_sample_images
    except ImportError as error:
        raise ImportError(
            f"the demo data are cut out of pictures shipped with scikit-image, scikit-learn and imaug, and '{error.name}' is "
            "missing: pip install 'mmlisa[demo]'"
        ) from error
    china, flower = load_sample_images().images
    pictures = {"china": china, "flower": flower, "quokka": imgaug.data.quokka()}
    return Path(skimage.data.__file__).parent, pictures, imgaug.data.quokka_segmentation_map().arr[..., 0]


def _read(path: Path) -> np.ndarray:
    with Image.open(path) as image:  # not cv2, which warns of the colour profiles in these files
        return np.asarray(image.convert("RGB"))


def _outline(shape: tuple[int, ...], points: list[list[int]]) -> np.ndarray:
    """Return a polygon as a mask with rounded corners: 0 or 1, ``[H, W]``."""
    mask = cv2.fillPoly(np.zeros(shape[:2], np.float32), [np.array(points, np.int32)], 1.0)
    return (cv2.GaussianBlur(mask, (0, 0), 2, borderType=cv2.BORDER_REPLICATE) > 0.5).astype(np.uint8)


def _largest(mask: np.ndarray) -> np.ndarray:
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask)
    return (labels == 1 + np.argmax(stats[1:, cv2.CC_STAT_AREA])).astype(np.uint8)


def _fill_holes(mask: np.ndarray) -> np.ndarray:
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.zeros_like(mask), contours, -1, 1, cv2.FILLED)


def _disk(diameter: int) -> np.ndarray:
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (diameter, diameter))


def _motorcycle_mask(disparity: np.ndarray) -> np.ndarray:
    """Return the mask of what is nearer than the wall (36 px of disparity) and above the floor, a plane in disparity."""
    y, x = np.mgrid[: disparity.shape[0], : disparity.shape[1]]
    known = np.isfinite(disparity)
    bare = known & (y > 330) & ((x < 100) | (y > 455))
    plane = np.stack([x, y, np.ones_like(x)], -1).astype(np.float64)
    floor = plane @ np.linalg.lstsq(plane[bare], disparity[bare], rcond=None)[0]
    near = np.where(known, disparity, 0) > np.maximum(36, floor + 2)
    mask = near.astype(np.uint8) * _outline(disparity.shape, _OUTLINES["motorcycle"])
    mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, _disk(7))
    mask = _largest(cv2.morphologyEx(mask, cv2.MORPH_OPEN, _disk(3)))
    return _fill_holes(mask)  # unknown disparity, and the gaps between the spokes


def _coin_masks(grey: np.ndarray) -> list[np.ndarray]:
    """Return masks ``[H, W]`` of the 23 coins that are whole and apart."""
    smooth = cv2.GaussianBlur(grey, (3, 3), 0)
    background = cv2.GaussianBlur(cv2.erode(smooth, np.ones((45, 45))), (0, 0), 20).astype(int)
    mask = (smooth.astype(int) - background > 55).astype(np.uint8)
    mask = _fill_holes(cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8)))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(cv2.morphologyEx(mask, cv2.MORPH_OPEN, _disk(7)))
    round_ones = [i for i in range(1, count) if stats[i, 4] > 0.7 * stats[i, 2] * stats[i, 3] and stats[i, 4] > 600]
    return [(labels == i).astype(np.uint8) for i in round_ones]


def _flower_mask(image: np.ndarray) -> np.ndarray:
    red, _, blue = np.moveaxis(image.astype(int), -1, 0)
    warm = ((red > 110) & (red > blue + 20)).astype(np.uint8)
    warm[371:] = 0  # another flower begins here
    return _fill_holes(_largest(cv2.morphologyEx(warm, cv2.MORPH_OPEN, _disk(5))))


def _cut(image: np.ndarray, mask: np.ndarray, max_side: int = 256) -> np.ndarray:
    """Return the cropped object as premultiplied RGBA in [0, 1], its longer side at most ``max_side``: ``[h, w, 4]``, float32."""
    # The outermost pixel of a cut-out contains old background.
    mask = cv2.erode(mask, _disk(3), borderType=cv2.BORDER_REPLICATE).astype(np.float32)[..., None]
    x, y, w, h = cv2.boundingRect(mask.astype(np.uint8))
    cutout = np.concatenate([image / np.float32(255) * mask, mask], -1)[y : y + h, x : x + w]
    scale = min(1, max_side / max(h, w))
    cutout = cv2.resize(cutout, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    # Keep the largest piece with its soft rim; thin parts may have come off.
    body = _largest((cutout[..., 3] >= 0.5).astype(np.uint8))
    return cutout * cv2.dilate(body, _disk(3))[..., None]


@lru_cache(1)
def load_objects() -> dict[str, list[np.ndarray]]:
    """Return the cut-outs of each class of :data:`CLASSES`, as premultiplied RGBA in [0, 1]: ``[h, w, 4]``, float32.

    Raises:
        ImportError: scikit-image, scikit-learn or imaug is missing.
    """
    folder, pictures, quokka_map = _sources()
    astronaut, chelsea, coffee = (_read(folder / f"{name}.png") for name in ("astronaut", "chelsea", "coffee"))
    coins, motorcycle = _read(folder / "coins.png"), _read(folder / "motorcycle_left.png")
    with np.load(folder / "motorcycle_disp.npz") as file:
        disparity = file["arr_0"]
    objects = {
        "person": [_cut(astronaut, _outline(astronaut.shape, _OUTLINES["person"]))],
        "cat": [_cut(chelsea, _outline(chelsea.shape, _OUTLINES["cat"]))],
        "cup": [_cut(coffee, _outline(coffee.shape, _OUTLINES["cup"]))],
        "coin": [_cut(coins, mask) for mask in _coin_masks(coins[..., 0])],
        "flower": [_cut(pictures["flower"], _flower_mask(pictures["flower"]))],
        "motorcycle": [_cut(motorcycle, _motorcycle_mask(disparity))],
        "quokka": [_cut(pictures["quokka"], (quokka_map > 0).astype(np.uint8))],
        "rocket": [_cut(astronaut, _outline(astronaut.shape, _OUTLINES["rocket"]))],
    }
    return {name: objects[name] for name in CLASSES}


@lru_cache(1)
def load_backgrounds() -> dict[str, np.ndarray]:
    """Return textures and parts of photographs without the objects, RGB: ``[H, W, 3]``, uint8, each side at least 185 pixels.

    Raises:
        ImportError: scikit-image, scikit-learn or imaug is missing.
    """
    folder, pictures, _ = _sources()
    whole = {name: _read(folder / f"{name}.png") for name in ("brick", "grass", "gravel", "moon", "ihc")}
    return {
        **whole,
        "temple": pictures["china"],
        "galaxies": _read(folder / "hubble_deep_field.jpg"),
        "leaves": np.ascontiguousarray(pictures["flower"][:340, 452:]),
        "sky": np.ascontiguousarray(_read(folder / "rocket.jpg")[:300, 340:560]),
        "fence": np.ascontiguousarray(pictures["quokka"][:, 560:]),
    }
