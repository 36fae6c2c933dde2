"""The demo data as semantic segmentation."""

from typing import ClassVar

from mmseg.datasets import BaseSegDataset

from mmlisa.registry import DATASETS

from .demo_objects import CLASSES, PALETTE


@DATASETS.register_module()
class DemoSegDataset(BaseSegDataset):
    """Class maps in ADE20K's layout, generated under ``data_root`` on first use; otherwise mmseg's BaseSegDataset.

    The nine classes include the background (0). Unlike in ADE20K there are no unlabelled pixels, and ``reduce_zero_label`` stays
    False. ``data_prefix`` is ``dict(img_path='ade/images/training',
    seg_map_path='ade/annotations/training')``, or ``validation``.
    """

    METAINFO: ClassVar = {"classes": ("background", *CLASSES), "palette": [[0, 0, 0], *map(list, PALETTE)]}

    def load_data_list(self) -> list[dict]:
        from .demo import ensure_demo

        ensure_demo(self.data_root)
        return super().load_data_list()
