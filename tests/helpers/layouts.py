"""Small folders in the layouts of COCO and ADE20K, filled with demo objects, on which the configs of the real data sets run."""

from pathlib import Path

import numpy as np

from mmlisa.datasets.demo import NUM_IMAGES, make_scenes, write_ade20k, write_coco
from mmlisa.datasets.demo_objects import CLASSES

# The names of the classes in COCO, or the closest class there.
COCO_NAMES = dict(
    person="person", cat="cat", cup="cup", coin="frisbee", flower="potted plant", motorcycle="motorcycle", quokka="bear",
    rocket="airplane",
)  # fmt: skip
# Indices into ADE20K's 150 classes; its class maps hold the index + 1, and 0 for unlabelled pixels.
ADE20K_INDICES = dict(
    background=0, person=12, cat=126, cup=147, coin=142, flower=66, motorcycle=116, quokka=126, rocket=90
)  # fmt: skip


def make_coco_layout(root: str | Path, num_images: int = 8, side: int = 320, seed: int = 0) -> Path:
    """Write COCO 2017's folders and annotations with its 80 categories; ``side``: typical size of an image in pixels."""
    from mmdet.datasets import CocoDataset

    root = Path(root)
    unused = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # official ids go up to 90, with gaps
    official = [i for i in range(1, 91) if i not in unused]
    categories = [{"id": i, "name": name} for i, name in zip(official, CocoDataset.METAINFO["classes"], strict=True)]
    ids = {category["name"]: category["id"] for category in categories}
    for split in NUM_IMAGES:
        scenes = list(make_scenes(split, num_images, seed, side))
        annotation_file = root / "annotations" / f"instances_{split}2017.json"
        write_coco(
            annotation_file, root / f"{split}2017", scenes, categories, [ids[COCO_NAMES[name]] for name in CLASSES]
        )
    return root


def make_ade20k_layout(root: str | Path, num_images: int = 8, side: int = 320, seed: int = 0) -> Path:
    """Write ADE20K's folders ``{images,annotations}/{training,validation}/`` with its 150 classes; arguments as above."""
    root = Path(root)
    values = np.array([ADE20K_INDICES[name] + 1 for name in ("background", *CLASSES)], np.uint8)
    for split in NUM_IMAGES:
        write_ade20k(root, split, list(make_scenes(split, num_images, seed, side)), values)
    return root
