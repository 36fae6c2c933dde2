"""The demo data as instance segmentation."""

from typing import ClassVar

from mmlisa.registry import DATASETS

from .coco import CocoDataset
from .demo_objects import CLASSES, PALETTE


@DATASETS.register_module()
class DemoCocoDataset(CocoDataset):
    """COCO-format demo data, generated under ``data_root`` (``data/demo``) on first use; otherwise :class:`CocoDataset`."""

    METAINFO: ClassVar = {"classes": CLASSES, "palette": PALETTE}

    def load_data_list(self) -> list[dict]:
        from .demo import ensure_demo  # only the demo data need these packages

        ensure_demo(self.data_root)
        return super().load_data_list()
