"""mmdet's CocoDataset with the mistakes of annotation files said out loud."""

import json
from difflib import get_close_matches
from pathlib import Path

from mmdet.datasets import CocoDataset as _CocoDataset
from mmengine.fileio import load

from mmlisa.registry import DATASETS


@DATASETS.register_module()
class CocoDataset(_CocoDataset):
    """COCO-format detection and instance segmentation.

    Raises:
        FileNotFoundError: the annotation file is missing; says what layout is expected.
        ValueError: the file is no COCO JSON, or lacks some of the dataset's classes (mmdet drops such classes silently).
    """

    def load_data_list(self) -> list[dict]:
        path = Path(self.ann_file)
        if "://" not in self.ann_file and not path.is_file():
            raise FileNotFoundError(
                f"annotation file {path} does not exist; ann_file is taken relative to data_root={self.data_root!r}, "
                "which should hold annotations/*.json beside the folders of images (see README, 'Data')"
            )
        try:
            data_list = super().load_data_list()
        except (json.JSONDecodeError, KeyError, UnicodeDecodeError) as error:
            raise ValueError(f"annotation file {path} is no COCO annotation file: {error!r}") from error
        wanted = self.metainfo["classes"]
        if len(self.cat_ids) < len(wanted):
            names = [category["name"] for category in load(self.ann_file, backend_args=self.backend_args)["categories"]]
            missing = [name for name in wanted if name not in names]
            hints = {name: near for name in missing if (near := get_close_matches(name, names, n=1))}
            raise ValueError(
                f"annotation file {path} lacks {len(missing)} of the dataset's {len(wanted)} classes: {missing[:8]}"
                f"{' …' if len(missing) > 8 else ''}; it has {names[:8]}{' …' if len(names) > 8 else ''}"
                f"{f'; close ones: {hints}' if hints else ''}. Set metainfo=dict(classes=(…)) to the file's"
            )
        return data_list
