"""The demo data as classification."""

from typing import ClassVar

from mmpretrain.datasets import CustomDataset

from mmlisa.registry import DATASETS

from .demo_objects import CLASSES


@DATASETS.register_module()
class DemoClsDataset(CustomDataset):
    """One object per image in class folders, generated under ``data_root`` on first use; otherwise mmpretrain's CustomDataset.

    ``data_prefix`` is ``'cls/train'`` or ``'cls/val'``.
    """

    METAINFO: ClassVar = {"classes": CLASSES}

    def load_data_list(self) -> list[dict]:
        from .demo import ensure_demo

        ensure_demo(self.data_root)
        return super().load_data_list()
