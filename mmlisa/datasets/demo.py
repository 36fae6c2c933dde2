"""The offline demo data: real objects pasted on real backgrounds with exact masks, generated from a seed on first use.

`make_demo` writes::

    train/*.jpg  val/*.jpg                                 images, the longer side 160 to 208 pixels
    annotations/instances_{train,val}.json                 COCO layout: polygons, and RLE for crowds
    ade/images/{training,validation}/*.jpg                 ADE20K layout: the same images
    ade/annotations/{training,validation}/*.png            class maps: 0 is the background class, 1 + i is CLASSES[i]
    cls/{train,val}/<class>/*.jpg                          ImageNet layout: one object per image
    demo.json                                              the settings

The first three images of each split hold a crowd (``iscrowd=1``), no object, and one tiny object.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from .demo_objects import CLASSES, UNSEEN_BACKGROUNDS, load_backgrounds, load_objects

VERSION = 3
NUM_IMAGES = {"train": 280, "val": 50}


class Instance(NamedTuple):
    """One object of a scene: index into :data:`CLASSES`, visible part ``[H, W]`` (bool), and whether it is a crowd."""

    label: int
    mask: np.ndarray
    iscrowd: bool = False


class Scene(NamedTuple):
    """An image ``[H, W, 3]`` (RGB, uint8), its objects, and its class map ``[H, W]`` (0 is the background, 1 + i CLASSES[i])."""

    image: np.ndarray
    instances: list[Instance]
    class_map: np.ndarray


# --- composing -----------------------------------------------------------------------------------------------------------------


def _materials(split: str, unseen_backgrounds: bool) -> dict[str, Any]:
    """Return a split's own coins, and all backgrounds or its own, as arguments of :func:`compose`."""
    is_val = split == "val"
    backgrounds = [n for n in load_backgrounds() if not unseen_backgrounds or (n in UNSEEN_BACKGROUNDS) == is_val]
    return {"coins": slice(17, None) if is_val else slice(0, 17), "backgrounds": backgrounds}


def random_background(
    rng: np.random.Generator, height: int, width: int, names: Sequence[str] | None = None
) -> np.ndarray:
    """Return a random crop of one of the named backgrounds (default: all), tinted if it is grey: ``[H, W, 3]`` in [0, 1]."""
    backgrounds = load_backgrounds()
    names = list(backgrounds) if names is None else names
    source = backgrounds[names[rng.integers(len(names))]]
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


def _pose(rng: np.random.Generator, cutout: np.ndarray, size: float, max_angle: float) -> np.ndarray:
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
    backgrounds: Sequence[str] | None = None,
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
        backgrounds: names of the backgrounds to draw from; None for all.

    Returns:
        The scene; its instances hold the visible parts.
    """
    height, width = size
    side = min(size)
    image = random_background(rng, height, width, backgrounds)
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
            cutout = _pose(rng, choices[rng.integers(len(choices))], longer, 180 if is_coin else 15)
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


def make_scenes(
    split: str, num_images: int, seed: int = 0, side: int = 192, unseen_backgrounds: bool = False
) -> Iterator[Scene]:
    """Yield the scenes of a split; the first has a crowd, the second no object, the third a tiny one.

    Args:
        split: ``'train'`` or ``'val'``; they share no coin and no random number.
        num_images: number of scenes; the first n are the same for any number.
        seed: determines everything, with ``split`` and the place in the sequence.
        side: typical size in pixels.
        unseen_backgrounds: the splits share no background either.

    Raises:
        ValueError: another split.
    """
    if split not in NUM_IMAGES:
        raise ValueError(f"split is {split!r}; it must be one of {list(NUM_IMAGES)}")
    materials = _materials(split, unseen_backgrounds)
    for index in range(num_images):
        rng = np.random.default_rng([seed, list(NUM_IMAGES).index(split), index])
        long, short = side * rng.choice([1, 1, 1, 5 / 6, 13 / 12]), rng.choice([1, 1, 0.9, 0.8])
        size = (round(long), round(long * short))[:: rng.choice([-1, 1])]
        labels = rng.permutation(len(CLASSES))[: 0 if index == 1 else rng.integers(2, 5)].tolist()
        scene = compose(rng, size, labels, crowd=8 if index == 0 else 0, **materials)
        if index == 2:
            scene = compose(rng, size, [rng.integers(len(CLASSES))], scales=(0.05, 0.05), **materials)
        yield scene


# --- writing -------------------------------------------------------------------------------------------------------------------


def mask_to_polygons(mask: np.ndarray) -> list[list[float]]:
    """Return COCO polygons along the pixels of a mask ``[H, W]`` (bool), one per connected part, that rasterise to it again.

    COCO's polygons have no holes. Each hole is joined to the outline by a line there and back, which encloses nothing.
    """
    from skimage.measure import approximate_polygon, find_contours

    count, labels = cv2.connectedComponents(mask.astype(np.uint8), connectivity=4)
    polygons = []
    for i in range(1, count):
        x, y, w, h = cv2.boundingRect((labels == i).astype(np.uint8))
        part = np.pad(labels[y : y + h, x : x + w] == i, 1)
        # Contours run through pixel centres, half a pixel from the corners; the padding adds one pixel.
        contours = sorted(find_contours(part.astype(float), 0.5), key=lambda c: -np.ptp(c[:, 0]) * np.ptp(c[:, 1]))
        outline, *holes = (approximate_polygon(c, 0.01)[:, ::-1] + (x - 0.5, y - 0.5) for c in contours)
        for hole in holes:
            distance = np.abs(outline[:, None] - hole[None]).sum(-1)
            a, b = np.unravel_index(distance.argmin(), distance.shape)
            outline = np.concatenate([outline[: a + 1], hole[b:], hole[1 : b + 1], outline[a:]])
        if len(outline) > 3:
            polygons.append(outline[:-1].round(2).ravel().tolist())
    return polygons


def mask_to_rle(mask: np.ndarray) -> dict:
    """Return COCO's uncompressed RLE: lengths of runs down the columns, zeros first."""
    pixels = np.concatenate([[False], mask.ravel(order="F"), [False]])
    ends = np.flatnonzero(pixels[1:] != pixels[:-1])
    runs = np.diff(np.concatenate([[0], ends, [mask.size]]))
    return {"size": list(mask.shape), "counts": (runs[:-1] if runs[-1] == 0 else runs).tolist()}


def _annotation(instance: Instance, annotation_id: int, image_id: int, category_id: int) -> dict:
    x, y, w, h = cv2.boundingRect(instance.mask.astype(np.uint8))
    return {
        "id": annotation_id,
        "image_id": image_id,
        "category_id": category_id,
        "bbox": [x, y, w, h],
        "area": int(instance.mask.sum()),
        "iscrowd": int(instance.iscrowd),
        "segmentation": mask_to_rle(instance.mask) if instance.iscrowd else mask_to_polygons(instance.mask),
    }


def _save(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = image[..., ::-1] if image.ndim == 3 else image
    if not cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 95]):
        raise OSError(f"could not write {path}")


def write_coco(path: Path, folder: Path, scenes: list[Scene], categories: list[dict], ids: list[int]) -> None:
    """Write images into ``folder`` and annotations into ``path``; ``ids[i]`` is the category of CLASSES[i]."""
    images, annotations = [], []
    for image_id, scene in enumerate(scenes, 1):
        name = f"{image_id:012d}.jpg"
        _save(folder / name, scene.image)
        height, width = scene.class_map.shape
        images.append({"id": image_id, "file_name": name, "height": height, "width": width})
        for instance in scene.instances:
            annotations.append(_annotation(instance, len(annotations) + 1, image_id, ids[instance.label]))
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


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock on a file; yields False on platforms and file systems without such locks."""
    try:
        import fcntl
    except ImportError:
        yield False
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True


def make_demo(
    root: str | Path = "data/demo",
    seed: int = 0,
    num_images: dict[str, int] | None = None,
    side: int = 192,
    progress: bool = True,
    unseen_backgrounds: bool = False,
) -> Path:
    """Write the demo data under ``root`` unless they exist, and return ``root``.

    Args:
        num_images: images per split, :data:`NUM_IMAGES` by default; ``seed`` and the number determine an image.
        side: typical size of an image in pixels.
        unseen_backgrounds: the validation images have backgrounds that the training images lack.

    Raises:
        FileExistsError: see :func:`make_once`.
        ImportError: scikit-image, scikit-learn or imaug is missing.
    """
    recipe = {"version": VERSION, "seed": seed, "num_images": num_images or NUM_IMAGES, "side": side}
    if unseen_backgrounds:  # absent in data that were written before the option existed
        recipe["unseen_backgrounds"] = True
    return make_once(root, recipe, lambda folder: _build(folder, recipe, progress))


def make_once(root: str | Path, recipe: dict, build: Callable[[Path], None]) -> Path:
    """Write data under ``root`` unless they exist, all or nothing; processes that start together write them once.

    The data are built in a hidden folder beside ``root``, which is then renamed. A killed or failed build leaves nothing
    under ``root``. ``root/demo.json`` keeps the ``recipe``, everything that determines the data.

    Raises:
        FileExistsError: ``root`` holds something else, or data of another recipe.
    """
    root = Path(root)
    if _is_made(root, recipe):
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with _locked(root.parent / f".{root.name}.lock") as alone:
        if _is_made(root, recipe):  # by the previous holder of the lock
            return root
        # Remove what killed builds left. Without the lock it may belong to a running build; then the rename decides.
        for leftover in root.parent.glob(f".{root.name}-*") if alone else ():
            shutil.rmtree(leftover, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
        try:
            build(folder)
            (folder / "demo.json").write_text(json.dumps(recipe))
            folder.chmod(0o755)  # mkdtemp creates private folders
            try:
                os.rename(folder, root)
            except OSError:
                if not _is_made(root, recipe):
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return root


class Generated:
    """Mixin of data sets: writes the demo data under ``data_root``, unless demo data of any seed and size are there."""

    def load_data_list(self) -> list[dict]:
        if _made_as(Path(self.data_root)).get("version") != VERSION:
            make_demo(self.data_root)
        return super().load_data_list()


def _made_as(root: Path) -> dict:
    """Return the recipe of the demo data under ``root``; empty if there are none."""
    try:
        return json.loads((root / "demo.json").read_text())
    except FileNotFoundError:
        return {}


def _is_made(root: Path, recipe: dict) -> bool:
    made = _made_as(root)
    if made and made != recipe:
        raise FileExistsError(
            f"folder '{root}' holds demo data with the settings {made}, not {recipe}. Choose another folder: root, or data_root "
            "of each dataset"
        )
    if not made and root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise FileExistsError(
            f"folder '{root}' holds other data, and the demo data are written only into a new folder. For demo data choose "
            "another data_root; for your own data set type='mmlisa.CocoDataset', 'BaseSegDataset' or 'CustomDataset' in each "
            "dataset of the config"
        )
    return bool(made)


def _build(root: Path, recipe: dict, progress: bool) -> None:
    from tqdm import tqdm

    categories = [{"id": i, "name": name, "supercategory": "object"} for i, name in enumerate(CLASSES, 1)]
    unseen = recipe.get("unseen_backgrounds", False)
    for split, number in recipe["num_images"].items():
        scenes = make_scenes(split, number, recipe["seed"], recipe["side"], unseen)
        scenes = list(tqdm(scenes, f"demo data, {split}", number, disable=not progress, mininterval=0.5))
        annotation_file = root / "annotations" / f"instances_{split}.json"
        write_coco(annotation_file, root / split, scenes, categories, [category["id"] for category in categories])
        write_ade20k(root / "ade", split, scenes, np.arange(len(CLASSES) + 1, dtype=np.uint8))
    per_class = {split: max(1, number // len(CLASSES)) for split, number in recipe["num_images"].items()}
    make_imagenet_layout(root / "cls", per_class, recipe["seed"], unseen_backgrounds=unseen)


def make_imagenet_layout(
    root: str | Path,
    num_per_class: int | dict[str, int] = 4,
    seed: int = 0,
    side: int = 64,
    unseen_backgrounds: bool = False,
) -> Path:
    """Write ImageNet's folders ``{train,val}/<class>/*.jpg`` with one large object per image of ``side`` x ``side`` pixels.

    ``num_per_class`` is one number of images for both splits, or one for each.
    """
    root = Path(root)
    for split_index, split in enumerate(NUM_IMAGES):
        number = num_per_class[split] if isinstance(num_per_class, dict) else num_per_class
        materials = _materials(split, unseen_backgrounds)
        for label, name in enumerate(CLASSES):
            for index in range(number):
                rng = np.random.default_rng([seed, 2 + split_index, label, index])
                scales = (1.4, 1.8) if name == "coin" else (0.7, 0.9)
                scene = compose(rng, (side, side), [label], scales=scales, min_visible=0.0, **materials)
                _save(root / split / name / f"{name}_{index:05d}.jpg", scene.image)
    return root
