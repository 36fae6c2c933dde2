"""The demo data as mmpretrain's class folders."""

from typing import ClassVar

from mmpretrain.datasets import CustomDataset

from mmlisa.registry import DATASETS

from .demo import Generated
from .demo_objects import CLASSES


@DATASETS.register_module()
class DemoClsDataset(Generated, CustomDataset):
    """One object per image in class folders, made under ``data_root`` on first use; otherwise mmpretrain's CustomDataset.

    ``data_prefix`` is ``'cls/train'`` or ``'cls/val'``.
    """

    METAINFO: ClassVar = {"classes": CLASSES}
