"""The demo data as instance segmentation, semantic segmentation and classification, for the libraries that are installed."""

from importlib.util import find_spec
from typing import ClassVar

from mmlisa.registry import DATASETS

from .demo_objects import CLASSES, PALETTE


class _Generated:
    """Mixin: generates the demo data under ``data_root`` on first use."""

    def load_data_list(self) -> list[dict]:
        from .demo import ensure_demo  # only the demo data need its packages

        ensure_demo(self.data_root)
        return super().load_data_list()


if find_spec("mmdet"):
    from .coco import CocoDataset

    @DATASETS.register_module()
    class DemoCocoDataset(_Generated, CocoDataset):
        """COCO-format demo data, generated under ``data_root`` (``data/demo``) on first use; otherwise :class:`CocoDataset`."""

        METAINFO: ClassVar = {"classes": CLASSES, "palette": PALETTE}


if find_spec("mmseg"):
    from mmseg.datasets import BaseSegDataset

    @DATASETS.register_module()
    class DemoSegDataset(_Generated, BaseSegDataset):
        """Class maps in ADE20K's layout, generated under ``data_root`` on first use; otherwise mmseg's BaseSegDataset.

        The nine classes include the background (0). Unlike in ADE20K there are no unlabelled pixels, and ``reduce_zero_label``
        stays False. ``data_prefix`` is ``dict(img_path='ade/images/training', seg_map_path='ade/annotations/training')``, or
        ``validation``.
        """

        METAINFO: ClassVar = {"classes": ("background", *CLASSES), "palette": [[0, 0, 0], *map(list, PALETTE)]}


if find_spec("mmpretrain"):
    from mmpretrain.datasets import CustomDataset

    @DATASETS.register_module()
    class DemoClsDataset(_Generated, CustomDataset):
        """One object per image in class folders, made under ``data_root`` on first use; otherwise mmpretrain's CustomDataset.

        ``data_prefix`` is ``'cls/train'`` or ``'cls/val'``.
        """

        METAINFO: ClassVar = {"classes": CLASSES}
