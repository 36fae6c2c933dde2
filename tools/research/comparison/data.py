"""Data of the comparisons, made or unpacked before the first run, so that runs only read them."""

from pathlib import Path

from mmlisa.datasets.demo import make_demo, make_imagenet_layout, make_once
from research.packages import data_folder
from research.tree_crowns import make_tree_crowns

# Scenes for detection and segmentation, and single objects for classification: images of each split, or of each class.
SCENES = {"train": 2000, "val": 160}
OBJECTS = {"train": 250, "val": 64}


def prepare_scenes(root: str | Path) -> Path:
    """Make the demo scenes of :data:`SCENES`."""
    return make_demo(root, num_images=SCENES)


def prepare_objects(root: str | Path) -> Path:
    """Make the demo objects of :data:`OBJECTS`, one per image of 64 pixels."""
    return make_once(root, lambda folder: make_imagenet_layout(folder, OBJECTS))


def prepare_solar_cells(_: str) -> Path:
    """Find the images of the installed package elpv-dataset, which are read in place."""
    return data_folder("elpv_dataset", "elpv-dataset")


def prepare_tree_crowns(root: str | Path) -> Path:
    """Make crops of the images of the installed package deepforest."""
    return make_tree_crowns(root)
