"""The offline demo data: real objects pasted on real backgrounds with exact masks, generated from a seed on first use.

`make_demo` writes::

    train/*.jpg  val/*.jpg                                 images, the longer side 160 to 208 pixels
    annotations/instances_{train,val}.json                 COCO layout, masks as RLE
    ade/images/{training,validation}/*.jpg                 ADE20K layout: the same images
    ade/annotations/{training,validation}/*.png            class maps: 0 is the background class, 1 + i is CLASSES[i]
    cls/{train,val}/<class>/*.jpg                          ImageNet layout: one object per image

The first three images of each split hold a crowd (``iscrowd=1``), no object, and one tiny object.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from filelock import FileLock
from pycocotools.mask import encode
from tqdm import tqdm

from mmlisa.checkpoints.writing import atomic_path

from .demo_objects import CLASSES, load_backgrounds, load_objects

NUM_IMAGES = {"train": 280, "val": 50}
COINS = {"train": slice(0, 17), "val": slice(17, None)}  # the splits share no coin
CATEGORIES = [{"id": i, "name": name, "supercategory": "object"} for i, name in enumerate(CLASSES, 1)]


class Instance(NamedTuple):
    """One object of a scene: index into :data:`CLASSES`, visible part ``[H, W]`` (bool), and whether it is a crowd."""

    label: int
    mask: np.ndarray
    iscrowd: bool = False


class Scene(NamedTuple):
    """An image ``[H, W, 3]`` (RGB, uint8), its objects, and its class map ``[H, W]`` (0 is the background, 1 + i CLASSES[i])."""

    image: np.ndarray
    instances: Iterable[Instance]
    class_map: np.ndarray


# --- composing -----------------------------------------------------------------------------------------------------------------


def random_background(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Return a random crop of a random background, tinted if it is grey: ``[H, W, 3]`` in [0, 1]."""
    backgrounds = list(load_backgrounds().values())
    source = backgrounds[rng.integers(len(backgrounds))]
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


def _place(cutout: np.ndarray, height: int, width: int, y: int, x: int) -> np.ndarray:
    """Return the cut-out on an empty canvas ``[height, width, 4]``, its top left corner at (y, x), which may lie outside."""
    layer = np.zeros((height, width, 4), np.float32)
    top, left, bottom, right = max(y, 0), max(x, 0), min(y + cutout.shape[0], height), min(x + cutout.shape[1], width)
    layer[top:bottom, left:right] = cutout[top - y : bottom - y, left - x : right - x]
    return layer


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
        rng: source of every choice.
        size: (height, width) of the image.
        labels: one index into :data:`CLASSES` per object.
        coins: the coins to draw from, so that splits can have different ones.
        scales: range of an object's longer side, in image sides; for a coin the upper end is multiplied by 0.6.
        crowd: number of coins in a heap that is pasted first and annotated as one crowd.
        min_visible: share of its pixels that every object keeps visible; an object that cannot be placed so is left out.

    Returns:
        The scene; its instances hold the visible parts.
    """
    height, width = size
    side = min(size)
    image = random_background(rng, height, width)
    owner = np.full(size, -1)  # which paste each pixel belongs to
    pasted, areas = [], []  # class and unoccluded area of each paste
    objects = load_objects()
    heap = rng.integers(side // 4, side * 3 // 4, 2) if crowd else None
    for index, label in enumerate([CLASSES.index("coin")] * crowd + labels):
        cutouts = objects[CLASSES[label]]
        is_coin = CLASSES[label] == "coin"
        choices = cutouts[coins] if is_coin else cutouts
        low, high = (scales[0], max(scales[0], scales[1] * 0.6)) if is_coin else scales
        for _ in range(20):
            longer = side * np.exp(rng.uniform(np.log(low), np.log(high)))
            cutout = pose(rng, choices[rng.integers(len(choices))], longer, 180 if is_coin else 15)
            if index < crowd:
                y, x = heap - np.array(cutout.shape[:2]) // 2 + rng.integers(-side // 6, side // 6 + 1, 2)
            else:  # up to a tenth outside
                slack = [c // 10 for c in cutout.shape[:2]]
                y, x = rng.integers(np.negative(slack), np.maximum(np.array(size) - cutout.shape[:2], 0) + slack + 1)
            layer = _place(cutout, height, width, int(y), int(x))
            mask = layer[..., 3] >= 0.5
            # A soft rim of one pixel remains outside the mask.
            layer *= cv2.dilate(mask.astype(np.uint8), np.ones((3, 3)))[..., None]
            whole = (cutout[..., 3] >= 0.5).sum()
            left = np.bincount(owner[(owner >= 0) & ~mask], minlength=len(areas))
            # The coins of a crowd may hide each other.
            if mask.sum() >= min_visible * whole and np.all(left[crowd:] >= min_visible * np.array(areas[crowd:])):
                break
        else:
            continue
        image = image * (1 - layer[..., 3:]) + layer[..., :3]
        owner[mask] = len(areas)
        pasted.append(label)
        areas.append(whole)
    class_map = np.append(np.array(pasted, np.uint8) + 1, 0)[owner].astype(np.uint8)
    instances = [Instance(label, owner == i) for i, label in enumerate(pasted) if i >= crowd]
    if crowd:
        instances.append(Instance(CLASSES.index("coin"), (owner >= 0) & (owner < crowd), iscrowd=True))
    return Scene(np.round(image * 255).clip(0, 255).astype(np.uint8), instances, class_map)


def make_large_scene(split: str, index: int, seed: int, side: int = 3000, objects: int = 200) -> Scene:
    """Return a square scene of ``side`` pixels with objects of 20 to 60 pixels, which do not overlap."""
    rng = np.random.default_rng([seed, split == "val", index])
    image, owner, labels = random_background(rng, side, side), np.full((side, side), -1, np.int16), []
    while len(labels) < objects:
        name = CLASSES[label := int(rng.integers(len(CLASSES)))]
        cutouts = load_objects()[name][COINS[split] if name == "coin" else slice(None)]
        cutout = pose(rng, cutouts[rng.integers(len(cutouts))], rng.uniform(20, 60), 180 if name == "coin" else 15)
        height, width = cutout.shape[:2]
        y, x = rng.integers(side - height), rng.integers(side - width)
        place = slice(y, y + height), slice(x, x + width)
        if (owner[place] < 0).all():
            image[place] = image[place] * (1 - cutout[..., 3:]) + cutout[..., :3]
            owner[place][cutout[..., 3] >= 0.5] = len(labels)
            labels.append(label)
    # One at a time: together the masks take ``objects * side * side`` bytes.
    instances = (Instance(label, owner == number) for number, label in enumerate(labels))
    return Scene((image * 255).round().clip(0, 255).astype(np.uint8), instances, owner >= 0)


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


# --- writing -------------------------------------------------------------------------------------------------------------------


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
        height, width = scene.class_map.shape
        images.append({"id": image_id, "file_name": name, "height": height, "width": width})
        for label, mask, iscrowd in scene.instances:
            annotation = {"id": len(annotations) + 1, "image_id": image_id, "category_id": ids[label]}
            annotation |= {"bbox": list(cv2.boundingRect(mask.astype(np.uint8))), "area": int(mask.sum())}
            counts = encode(np.asfortranarray(mask, np.uint8))["counts"].decode()
            annotation |= {"iscrowd": int(iscrowd), "segmentation": {"size": list(mask.shape), "counts": counts}}
            annotations.append(annotation)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))


def write_ade20k(root: Path, split: str, scenes: list[Scene], values: np.ndarray) -> None:
    """Write images and class maps of one split into ADE20K's folders; class c of the scene becomes ``values[c]``."""
    folder = {"train": "training", "val": "validation"}[split]
    for index, scene in enumerate(scenes, 1):
        name = f"ADE_{split}_{index:08d}"
        _save(root / "images" / folder / f"{name}.jpg", scene.image)
        _save(root / "annotations" / folder / f"{name}.png", values[scene.class_map])


# --- the demo data set ---------------------------------------------------------------------------------------------------------


def make_demo(
    root: str | Path = "data/demo",
    seed: int = 0,
    num_images: dict[str, int] | None = None,
    side: int = 192,
    progress: bool = True,
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
        if root.exists():  # another process has made it meanwhile
            return root
        with atomic_path(root) as folder:
            for split, number in numbers.items():
                scenes = make_scenes(split, number, seed, side)
                scenes = list(tqdm(scenes, f"demo data, {split}", number, disable=not progress, mininterval=0.5))
                write_coco(folder / "annotations" / f"instances_{split}.json", folder / split, scenes)
                write_ade20k(folder / "ade", split, scenes, np.arange(len(CLASSES) + 1, dtype=np.uint8))
            per_class = {split: max(1, number // len(CLASSES)) for split, number in numbers.items()}
            make_imagenet_layout(folder / "cls", per_class, seed)
    return root


class Generated:
    """Mixin of data sets: writes the demo data into ``data_root`` unless this folder exists."""

    def load_data_list(self) -> list[dict]:
        make_demo(self.data_root)
        return super().load_data_list()


def make_imagenet_layout(
    root: str | Path, num_per_class: int | dict[str, int] = 4, seed: int = 0, side: int = 64
) -> Path:
    """Write ImageNet's folders ``{train,val}/<class>/*.jpg`` with one large object per image of ``side`` x ``side`` pixels.

    ``num_per_class`` is one number of images for both splits, or one for each.
    """
    root = Path(root)
    for split_index, split in enumerate(NUM_IMAGES):
        number = num_per_class[split] if isinstance(num_per_class, dict) else num_per_class
        for label, name in enumerate(CLASSES):
            for index in range(number):
                rng = np.random.default_rng([seed, 2 + split_index, label, index])
                scales = (1.4, 1.8) if name == "coin" else (0.7, 0.9)
                scene = compose(rng, (side, side), [label], COINS[split], scales=scales, min_visible=0.0)
                _save(root / split / name / f"{name}_{index:05d}.jpg", scene.image)
    return root
