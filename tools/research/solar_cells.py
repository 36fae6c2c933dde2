"""Solar cells in electroluminescence images, graded by how likely they are defective: the data of the package elpv-dataset.

Buerhop-Lutz et al., "A Benchmark for Visual Identification of Defective Solar Cells in Electroluminescence Imagery"; Deitsch et
al., "Automatic classification of defective photovoltaic module cells in electroluminescence images". The images are licensed
CC BY-NC-SA 4.0 and are not part of this package: ``pip install --no-deps elpv-dataset`` installs them.
"""

from pathlib import Path
from typing import Any, ClassVar

from mmpretrain.datasets import BaseDataset

from mmlisa.registry import DATASETS

from .packages import data_folder

NUM_FOLDS = 5
# Cells are in the order of their modules, most of which have 60 cells. The data do not name the modules.
BLOCK = 60


@DATASETS.register_module()
class SolarCellDataset(BaseDataset):
    """2,624 grey images of 300x300 pixels in four grades: a defect probability of 0, 1/3, 2/3 or 1.

    Blocks of 60 consecutive cells are dealt to five folds in turn, so that few modules have cells in two folds.

    Args:
        split: ``'test'`` is one fold, ``'train'`` the other four.
        fold: number of the test fold, 0 to 4.
        data_root: folder with ``labels.csv`` and ``images/``; None for the folder of the installed package.
        **kwargs: arguments of mmpretrain's ``BaseDataset``.

    Raises:
        ImportError: no ``data_root``, and elpv-dataset is not installed.
        ValueError: another split or fold.
    """

    METAINFO: ClassVar = {"classes": ("functional", "probably functional", "probably defective", "defective")}

    def __init__(self, split: str, fold: int = 0, data_root: str | None = None, **kwargs: Any) -> None:
        if split not in ("train", "test"):
            raise ValueError(f"split is {split!r}; it must be 'train' or 'test'")
        if fold not in range(NUM_FOLDS):
            raise ValueError(f"fold is {fold!r}; it must lie between 0 and {NUM_FOLDS - 1}")
        self.split, self.fold = split, fold
        root = data_folder("elpv_dataset", "elpv-dataset") if data_root is None else data_root
        super().__init__(ann_file="labels.csv", data_root=str(root), test_mode=split == "test", **kwargs)

    def load_data_list(self) -> list[dict]:
        with open(self.ann_file) as file:
            rows = [line.split() for line in file if line.strip()]
        return [
            dict(img_path=f"{self.data_root}/{name}", gt_label=round(3 * float(probability)))
            for index, (name, probability, _) in enumerate(rows)
            if (index // BLOCK % NUM_FOLDS == self.fold) == (self.split == "test")
        ]


def link_solar_cells(root: str | Path, fold: int = 0, data_root: str | None = None) -> None:
    """Links the images into class folders, ``<root>/train/defective/cell0001.png`` …; ``val`` is the test fold.

    Raises:
        ImportError: no ``data_root``, and elpv-dataset is not installed.
        OSError: a link cannot be made, such as one that exists.
    """
    for split, folder in (("train", "train"), ("test", "val")):
        for cell in SolarCellDataset(split, fold, data_root, pipeline=[]).load_data_list():
            image = Path(cell["img_path"])
            link = Path(root, folder, SolarCellDataset.METAINFO["classes"][cell["gt_label"]], image.name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(image.resolve())
