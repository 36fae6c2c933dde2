"""mmdet's CocoDataset that says what is wrong with an annotation file."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mmdet.datasets import CocoDataset as _CocoDataset
from mmengine.fileio import get
from mmengine.logging import print_log

from mmlisa.registry import DATASETS

from .annotations import Problem, find_problems, summarize, without


@DATASETS.register_module()
class CocoDataset(_CocoDataset):
    """COCO-format detection and instance segmentation.

    Args:
        on_bad_annotation: ``'skip'`` leaves out the entries that :func:`find_problems` names, and logs them; ``'error'`` refuses
            the file. Afterwards they are in ``problems``.
        **kwargs: mmdet's.

    Raises:
        FileNotFoundError: the annotation file is missing; says what layout is expected.
        ValueError: the file is no COCO JSON, has bad entries under ``'error'`` or nothing but bad ones, or lacks some of the
            dataset's classes (mmdet drops such classes silently); or another ``on_bad_annotation``.
    """

    def __init__(self, *args: Any, on_bad_annotation: str = "skip", **kwargs: Any) -> None:
        if on_bad_annotation not in ("skip", "error"):
            raise ValueError(f"on_bad_annotation is {on_bad_annotation!r}; it must be 'skip' or 'error'")
        self.on_bad_annotation = on_bad_annotation
        self.problems: list[Problem] = []
        super().__init__(*args, **kwargs)

    def load_data_list(self) -> list[dict]:
        path = Path(self.ann_file)
        if "://" not in self.ann_file and not path.is_file():
            raise FileNotFoundError(
                f"annotation file {path} does not exist; ann_file is taken relative to data_root={self.data_root!r}, "
                "which should hold annotations/*.json beside the folders of images (see docs/data.md)"
            )
        try:
            content = json.loads(get(self.ann_file, backend_args=self.backend_args))
            with_mask = any(getattr(step, "with_mask", False) for step in self.pipeline.transforms)
            self.problems = find_problems(content, with_mask)
            self._check_classes(path, [category["name"] for category in content["categories"]])
        except (ValueError, KeyError, RecursionError) as error:
            if str(error).startswith("annotation file"):
                raise
            raise ValueError(f"annotation file {path} is no COCO annotation file: {error!r}") from error
        usable = without(content, self.problems)
        if self.problems:
            self._report(path, content, usable)
        self._content = usable
        try:
            return super().load_data_list()
        finally:
            del self._content

    def COCOAPI(self, path: str) -> Any:  # mmdet calls it to read the file
        coco = _CocoDataset.COCOAPI()
        coco.dataset = self._content
        coco.createIndex()
        # mmdet's names for what the index has just made.
        coco.img_ann_map, coco.cat_img_map = coco.imgToAnns, coco.catToImgs
        return coco

    def _report(self, path: Path, content: dict, usable: dict) -> None:
        line = f"annotation file {path} has {summarize(self.problems)}"
        if self.on_bad_annotation == "error":
            raise ValueError(f"{line}. CocoDataset(on_bad_annotation='skip') leaves them out")
        if not usable["images"] or (content["annotations"] and not usable["annotations"]):
            raise ValueError(f"{line}. Nothing is left")
        print_log(f"skipped: {line}", logger="current", level=30)

    def _check_classes(self, path: Path, names: list[str]) -> None:
        wanted = self.metainfo["classes"]
        if isinstance(wanted, str):
            raise ValueError(
                f"annotation file {path}: metainfo has classes={wanted!r}, which is no file of names; write names in a tuple, "
                f"({wanted!r},)"
            )
        if not names:
            raise ValueError(f"annotation file {path} has no categories: each class needs an entry with id and name")
        missing = [name for name in wanted if name not in names]
        if not missing:
            return
        hints = {name: near for name in missing if (near := get_close_matches(name, names, n=1))}
        raise ValueError(
            f"annotation file {path} lacks {len(missing)} of the dataset's {len(wanted)} classes: {missing[:8]}"
            f"{' …' if len(missing) > 8 else ''}; it has {names[:8]}{' …' if len(names) > 8 else ''}"
            f"{f'; close ones: {hints}' if hints else ''}. Set metainfo=dict(classes=(…)) to the file's"
        )
