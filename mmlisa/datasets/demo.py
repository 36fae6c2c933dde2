"""The offline demo data: real objects pasted on real backgrounds with exact masks, generated from a seed on first use.

`make_demo` writes::

    train/*.jpg  val/*.jpg                                 images, the longer side 160 to 208 pixels
    annotations/instances_{train,val}.json                 COCO layout, masks as RLE
    ade/images/{training,validation}/*.jpg                 ADE20K layout: the same images
    ade/annotations/{training,validation}/*.png            class maps: 0 is the background class, 1 + i is CLASSES[i]
    cls/{train,val}/<class>/*.jpg                          ImageNet layout: one object per image

The first three images of each split hold a crowd (``iscrowd=1``), no object, and one tiny object.

The objects and backgrounds are cut out of photographs that scikit-image, scikit-learn and imaug ship. masks.json holds the masks
in their pixels as COCO's run lengths. They come from measured disparity (motorcycle), a threshold (coins, flower), imaug's
segmentation map (quokka), or an outline drawn by hand (person, cat, cup, rocket).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from filelock import FileLock
from PIL import Image
from pycocotools.mask import decode, encode

from mmlisa.checkpoints import atomic_path
from mmlisa.errors import UserError

CLASSES = ("cat", "coin", "cup", "flower", "motorcycle", "person", "quokka", "rocket")  # sorted, as class folders are
PALETTE = [
    (255, 127, 0), (0, 200, 210), (150, 90, 230), (255, 105, 180), (31, 120, 180), (220, 20, 60), (51, 160, 44),
    (255, 221, 51),
]  # fmt: skip
# scikit-image's photographs with objects; scikit-learn and imaug have those of the flower and the quokka.
_PHOTOGRAPHS = {"cat": "chelsea.png", "cup": "coffee.png", "coin": "coins.png", "motorcycle": "motorcycle_left.png"}
_PHOTOGRAPHS |= dict.fromkeys(("person", "rocket"), "astronaut.png")
NUM_IMAGES = {"train": 280, "val": 50}
COINS = {"train": slice(0, 17), "val": slice(17, None)}  # the splits share no coin
COIN = CLASSES.index("coin")
CATEGORIES = [{"id": i, "name": name, "supercategory": "object"} for i, name in enumerate(CLASSES, 1)]


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


def _cut(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the cropped object as premultiplied RGBA in [0, 1], its longer side at most 256: ``[h, w, 4]``, float32."""
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    # The outermost pixel of a cut-out contains old background.
    mask = cv2.erode(mask, disk, borderType=cv2.BORDER_REPLICATE).astype(np.float32)[..., None]
    x, y, w, h = cv2.boundingRect(mask.astype(np.uint8))
    cutout = np.concatenate([image / np.float32(255) * mask, mask], -1)[y : y + h, x : x + w]
    scale = min(1, 256 / max(h, w))
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


class Scene(NamedTuple):
    """An image and its objects."""

    image: np.ndarray  # [H, W, 3], RGB, uint8
    owner: np.ndarray  # [H, W], the number of the object that a pixel shows, -1 for none
    labels: list[int]  # one index into CLASSES per object
    has_crowd: bool  # the last object is one

    @property
    def class_map(self) -> np.ndarray:
        """``[H, W]``, uint8: 0 is the background, 1 + i is CLASSES[i]."""
        return np.array([*np.add(self.labels, 1), 0], np.uint8)[self.owner]

    def instances(self) -> Iterator[tuple[int, np.ndarray, bool]]:
        """Yield each object's label, visible part ``[H, W]`` (bool), and whether it is a crowd; a list may take gigabytes."""
        for number, label in enumerate(self.labels):
            yield label, self.owner == number, self.has_crowd and number == len(self.labels) - 1


def random_background(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Return a random crop of a random background, tinted if it is grey: ``[H, W, 3]`` in [0, 1]."""
    source = load_backgrounds()[rng.integers(len(load_backgrounds()))]
    is_grey = np.array_equal(source[..., 0], source[..., 1])
    largest = min(source.shape[0] / height, source.shape[1] / width)
    zoom = largest * rng.uniform(0.5, 1)
    h, w = int(height * zoom), int(width * zoom)
    y, x = rng.integers(source.shape[0] - h + 1), rng.integers(source.shape[1] - w + 1)
    crop = cv2.resize(source[y : y + h, x : x + w], (width, height), interpolation=cv2.INTER_AREA) / np.float32(255)
    if rng.random() < 0.5:
        crop = crop[:, ::-1]
    tint = rng.uniform(0.5, 1, 3) if is_grey else rng.uniform(0.85, 1.1, 3)  # as coins and quokkas are grey
    return np.clip(crop * rng.uniform(0.7, 1) / tint.max() * tint, 0, 1).astype(np.float32)


def pose(rng: np.random.Generator, cutout: np.ndarray, size: float, max_angle: float) -> np.ndarray:
    """Return the cut-out with its longer side ``size``, flipped, rotated and lit at random: premultiplied RGBA ``[h, w, 4]``."""
    scale = size / max(cutout.shape[:2])
    new = [max(2, round(side * scale)) for side in cutout.shape[1::-1]]
    cutout = cv2.resize(cutout, new, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    if rng.random() < 0.5:
        cutout = cutout[:, ::-1]
    h, w = cutout.shape[:2]
    rotation = cv2.getRotationMatrix2D(((w - 1) / 2, (h - 1) / 2), rng.uniform(-max_angle, max_angle), 1)
    cos, sin = np.abs(rotation[0, :2])
    canvas = int(np.ceil(w * cos + h * sin)), int(np.ceil(w * sin + h * cos))
    rotation[:, 2] += (canvas[0] - w) / 2, (canvas[1] - h) / 2
    cutout = cv2.warpAffine(np.ascontiguousarray(cutout), rotation, canvas, flags=cv2.INTER_LINEAR)
    colour = np.minimum(cutout[..., :3] * rng.uniform(0.85, 1.15), cutout[..., 3:])
    return np.concatenate([colour, cutout[..., 3:]], -1)


def compose(
    rng: np.random.Generator,
    size: tuple[int, int],
    labels: list[int],
    coins: slice = slice(None),
    scales: tuple[float, float] = (0.3, 0.65),
    crowd: int = 0,
    min_visible: float = 0.7,
) -> Scene:
    """Paste objects on a background, later ones over earlier ones.

    Args:
        rng, size: source of every choice, and (height, width) of the image.
        labels, coins: indices into :data:`CLASSES`, and the coins to draw from, so that splits can have different ones.
        scales: range of an object's longer side, in image sides; for a coin the upper end is multiplied by 0.6.
        crowd: number of coins in a heap that is pasted first and annotated as one crowd.
        min_visible: share of its pixels that every object keeps visible; an object that cannot be placed so is left out.
    """
    side, objects = min(size), load_objects()
    image = random_background(rng, *size)
    owner = np.full(size, -1)
    pasted, areas, visible = [], np.zeros(0, int), np.zeros(0, int)  # class, whole and visible area of each paste
    heap = rng.integers(side // 4, side * 3 // 4, 2) if crowd else None
    for index, label in enumerate([COIN] * crowd + labels):
        cutouts = objects[CLASSES[label]][coins if label == COIN else slice(None)]
        low, high = scales[0], max(scales[0], scales[1] * (0.6 if label == COIN else 1))
        for _ in range(20):
            longer = side * np.exp(rng.uniform(np.log(low), np.log(high)))
            cutout = pose(rng, cutouts[rng.integers(len(cutouts))], longer, 180 if label == COIN else 15)
            shape = np.array(cutout.shape[:2])
            if index < crowd:
                corner = heap - shape // 2 + rng.integers(-side // 6, side // 6 + 1, 2)
            else:  # up to a tenth outside
                corner = rng.integers(-(shape // 10), np.maximum(np.array(size) - shape, 0) + shape // 10 + 1)
            start, stop = np.maximum(corner, 0), np.minimum(corner + shape, size)
            place = tuple(map(slice, start, stop))
            layer = cutout[tuple(map(slice, start - corner, stop - corner))]
            mask, under = layer[..., 3] >= 0.5, owner[place]
            left = visible - np.bincount(under[mask & (under >= 0)], minlength=len(pasted))
            whole = (cutout[..., 3] >= 0.5).sum()
            # The coins of a crowd may hide each other.
            if mask.sum() >= min_visible * whole and np.all(left[crowd:] >= min_visible * areas[crowd:]):
                break
        else:
            continue
        # A soft rim of one pixel remains outside the mask.
        layer = layer * cv2.dilate(mask.astype(np.uint8), np.ones((3, 3)))[..., None]
        image[place] = image[place] * (1 - layer[..., 3:]) + layer[..., :3]
        under[mask] = len(pasted)
        pasted.append(label)
        areas, visible = np.append(areas, whole), np.append(left, mask.sum())
    if crowd:
        owner = np.where(owner < crowd, np.where(owner < 0, -1, len(pasted)), owner) - crowd * (owner >= 0)
        pasted = [*pasted[crowd:], COIN]
    return Scene(np.round(image * 255).clip(0, 255).astype(np.uint8), owner, pasted, bool(crowd))


def make_large_scene(split: str, index: int, seed: int, side: int = 3000, objects: int = 200) -> Scene:
    """Return a square scene of ``side`` pixels with objects of 20 to 60 pixels, which do not overlap."""
    rng = np.random.default_rng([seed, split == "val", index])
    labels = rng.integers(len(CLASSES), size=objects).tolist()
    return compose(rng, (side, side), labels, COINS[split], scales=(20 / side, 60 / side), min_visible=1)


def make_scenes(split: str, num_images: int, seed: int = 0, side: int = 192) -> Iterator[Scene]:
    """Yield the scenes of ``'train'`` or ``'val'``; the first has a crowd, the second no object, the third a tiny one.

    The splits share no coin and no random number. ``seed``, the split and the place in the sequence determine a scene. ``side``
    is its typical size in pixels.
    """
    for index in range(num_images):
        rng = np.random.default_rng([seed, list(NUM_IMAGES).index(split), index])
        long, short = side * rng.choice([1, 1, 1, 5 / 6, 13 / 12]), rng.choice([1, 1, 0.9, 0.8])
        size = (round(long), round(long * short))[:: rng.choice([-1, 1])]
        labels = rng.permutation(len(CLASSES))[: 0 if index == 1 else rng.integers(2, 5)].tolist()
        scene = compose(rng, size, labels, COINS[split], crowd=8 if index == 0 else 0)
        if index == 2:
            scene = compose(rng, size, [rng.integers(len(CLASSES))], COINS[split], scales=(0.05, 0.05))
        yield scene


def _save(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = image[..., ::-1] if image.ndim == 3 else image
    if not cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 95]):
        raise OSError(f"could not write {path}")


def write_coco(
    path: Path,
    folder: Path,
    scenes: Iterable[Scene],
    categories: list[dict] = CATEGORIES,
    ids: Sequence[int] = range(1, 1 + len(CLASSES)),
) -> None:
    """Write images into ``folder`` and annotations into ``path``; ``ids[i]`` is the category of CLASSES[i]."""
    images, annotations = [], []
    for image_id, scene in enumerate(scenes, 1):
        name = f"{image_id:012d}.jpg"
        _save(folder / name, scene.image)
        height, width = scene.owner.shape
        images.append({"id": image_id, "file_name": name, "height": height, "width": width})
        for label, mask, iscrowd in scene.instances():
            annotation = {"id": len(annotations) + 1, "image_id": image_id, "category_id": ids[label]}
            annotation |= {"bbox": list(cv2.boundingRect(mask.astype(np.uint8))), "area": int(mask.sum())}
            counts = encode(np.asfortranarray(mask, np.uint8))["counts"].decode()
            annotation |= {"iscrowd": int(iscrowd), "segmentation": {"size": list(mask.shape), "counts": counts}}
            annotations.append(annotation)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))


def write_ade20k(root: Path, split: str, scenes: list[Scene]) -> None:
    """Write images and class maps of one split into ADE20K's folders."""
    folder = {"train": "training", "val": "validation"}[split]
    for index, scene in enumerate(scenes, 1):
        name = f"ADE_{split}_{index:08d}"
        _save(root / "images" / folder / f"{name}.jpg", scene.image)
        _save(root / "annotations" / folder / f"{name}.png", scene.class_map)


def make_imagenet_layout(root: str | Path, numbers: dict[str, int], seed: int = 0, side: int = 64) -> None:
    """Write folders ``{train,val}/<class>/*.jpg``: ``numbers[split]`` images of ``side`` pixels with one large object."""
    for split, number in numbers.items():
        for label, name in enumerate(CLASSES):
            scales = (1.4, 1.8) if label == COIN else (0.7, 0.9)
            for index in range(number):
                rng = np.random.default_rng([seed, 2 + list(NUM_IMAGES).index(split), label, index])
                scene = compose(rng, (side, side), [label], COINS[split], scales, min_visible=0.0)
                _save(Path(root) / split / name / f"{name}_{index:05d}.jpg", scene.image)


def make_demo(
    root: str | Path = "data/demo",
    seed: int = 0,
    num_images: dict[str, int] | None = None,
    side: int = 192,
) -> Path:
    """Write the demo data under ``root`` unless this folder exists, and return ``root``.

    ``num_images`` is the number of images per split, :data:`NUM_IMAGES` by default; see :func:`make_scenes`.

    Raises:
        UserError: scikit-image, scikit-learn or imaug is missing.
    """
    root, numbers = Path(root), num_images or NUM_IMAGES
    if root.exists():
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(root.with_name(f".{root.name}.lock")):
        if root.exists():  # another process of the training has made it meanwhile
            return root
        with atomic_path(root) as folder:
            for split, number in numbers.items():
                scenes = list(make_scenes(split, number, seed, side))
                write_coco(folder / "annotations" / f"instances_{split}.json", folder / split, scenes)
                write_ade20k(folder / "ade", split, scenes)
            per_class = {split: max(1, number // len(CLASSES)) for split, number in numbers.items()}
            make_imagenet_layout(folder / "cls", per_class, seed)
    return root


class Generated:
    """Mixin of data sets: writes the demo data into ``data_root`` unless this folder exists."""

    def load_data_list(self) -> list[dict]:
        make_demo(self.data_root)
        return super().load_data_list()
