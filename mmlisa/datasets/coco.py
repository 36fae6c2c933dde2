"""mmdet's CocoDataset with checks of the annotation file, and the demo data in this format."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Literal

from mmdet.datasets import CocoDataset as _CocoDataset
from mmengine.fileio import get
from mmengine.logging import print_log

from mmlisa.registry import DATASETS

from .annotations import MOST_OUTSIDE, Problem, find_crowded, find_problems, share_outside, summarize, without
from .demo import Generated
from .demo_objects import CLASSES, PALETTE

# Parts of the reasons for which pycocotools fails, or decodes masks that hold uninitialised memory.
_STOPS_EVALUATION = ("RLE", "area is None", "no segmentation", "segmentation is ")


@DATASETS.register_module()
class CocoDataset(_CocoDataset):
    """COCO-format detection and instance segmentation.

    Args:
        on_bad_annotation: ``'skip'`` leaves out the entries that :func:`find_problems` names, and logs them; ``'error'`` refuses
            the file. ``problems`` holds them afterwards. A test set stops at those that COCO's evaluation cannot read.
        **kwargs: mmdet's.

    Attributes:
        problems: the bad entries.
        suspicion: doubts about the file as a whole, such as boxes in another format; empty if there are none.

    Raises:
        FileNotFoundError: the annotation file is missing; the message describes the expected layout.
        ValueError: the file is not COCO JSON; all of its entries are bad, or some under ``'error'``; a test set has entries that
            COCO's evaluation, which reads the file again, cannot read; the file lacks some of the dataset's classes (mmdet
            drops such classes silently), or has them in another order.
    """

    def __init__(self, *args: Any, on_bad_annotation: Literal["skip", "error"] = "skip", **kwargs: Any) -> None:
        self.on_bad_annotation = on_bad_annotation
        self.problems: list[Problem] = []
        self.suspicion = ""
        super().__init__(*args, **kwargs)

    def load_data_list(self) -> list[dict]:
        path = Path(self.ann_file)
        if "://" not in self.ann_file and not path.is_file():
            raise FileNotFoundError(
                f"annotation file {path} does not exist; ann_file is taken relative to data_root={self.data_root!r}, "
                "which should hold annotations/*.json beside the folders of images (see docs/data.md)"
            )
        with_mask = any(getattr(step, "with_mask", False) for step in self.pipeline.transforms)
        try:
            content = json.loads(get(self.ann_file, backend_args=self.backend_args))
            self.problems = find_problems(content, with_mask)
        except (ValueError, KeyError, RecursionError) as error:
            raise ValueError(f"annotation file {path} is not a COCO annotation file: {error!r}") from error
        self._check_classes(path, [category["name"] for category in content["categories"]])
        self._content = without(content, self.problems)
        self._report(path, content, with_mask)
        try:
            return super().load_data_list()
        finally:
            del self._content

    def load_proposals(self) -> None:
        if str(self.proposal_file).endswith((".pkl", ".pickle", ".yaml", ".yml")):
            raise ValueError(
                f"proposal_file='{self.proposal_file}' could run code when mmdet reads it; save the proposals as .json instead"
            )
        super().load_proposals()

    def COCOAPI(self, path: str) -> Any:  # mmdet calls it to read the file
        coco = _CocoDataset.COCOAPI()
        coco.dataset = self._content
        coco.createIndex()
        # mmdet reads the index under these names.
        coco.img_ann_map, coco.cat_img_map = coco.imgToAnns, coco.catToImgs
        return coco

    def _report(self, path: Path, content: dict, with_mask: bool) -> None:
        doubts = []
        if (outside := share_outside(content)) > MOST_OUTSIDE:
            question = "Are they (x1, y1, x2, y2)? COCO's bbox is (x, y, width, height)"
            doubts.append(f"{outside:.0%} of the boxes reach outside their image. {question}")
        if crowded := [name for name in find_crowded(self._content) if name in self.metainfo["classes"]]:
            doubts.append(
                f"most annotations of {', '.join(crowded)} are crowds (iscrowd=1), which training and evaluation ignore. If they "
                "are objects, as CVAT exports masks, set iscrowd to 0"
            )
        if doubts:
            self.suspicion = ". ".join(doubts)
            print_log(f"annotation file {path}: {self.suspicion}", logger="current", level=30)
        if self.problems and with_mask and not any(entry.get("segmentation") for entry in content["annotations"]):
            raise ValueError(
                f"annotation file {path} has boxes without outlines (segmentation), but the pipeline loads masks. To train on "
                "boxes only, set with_mask=False in LoadAnnotations, and mask_roi_extractor=None and mask_head=None in "
                "model.roi_head"
            )
        if self.test_mode:
            self._check_evaluation(path, content)
        if not self.problems:
            return
        line = f"annotation file {path} has {summarize(self.problems)}"
        if self.on_bad_annotation == "error":
            raise ValueError(f"{line}. CocoDataset(on_bad_annotation='skip') leaves them out")
        if not self._content["images"] or (content["annotations"] and not self._content["annotations"]):
            raise ValueError(f"{line}. No usable entry is left")
        print_log(f"skipped: {line}. mmlisa check-data lists all of them", logger="current", level=30)

    def _check_evaluation(self, path: Path, content: dict) -> None:
        """Check what the evaluator will do with the file, which it reads again as a whole."""
        bare = [entry["id"] for entry in content["annotations"] if "iscrowd" not in entry]
        if bare:
            raise ValueError(
                f"annotation file {path}: {len(bare)} annotations have no iscrowd, the first has id {bare[0]}. COCO's evaluation "
                'needs it: add "iscrowd": 0 to each'
            )
        stopping = [p for p in self.problems if any(part in p.reason for part in _STOPS_EVALUATION)]
        if stopping:
            raise ValueError(
                f"annotation file {path} has {summarize(stopping)}. COCO's evaluation cannot read them: correct or remove these "
                "annotations"
            )
        if any(entry["id"] == 0 for entry in content["annotations"]):
            reason = "COCO's evaluation counts the annotation with id 0 as never found; number annotations from 1"
            print_log(f"annotation file {path}: {reason}", logger="current", level=30)

    def _check_classes(self, path: Path, names: list[str]) -> None:
        wanted = self.metainfo["classes"]
        if isinstance(wanted, str):
            raise ValueError(
                f"annotation file {path}: metainfo has classes={wanted!r}, which is not a file of names; write names in a tuple, "
                f"({wanted!r},)"
            )
        if not names:
            raise ValueError(f"annotation file {path} has no categories: each class needs an entry with id and name")
        missing = [name for name in wanted if name not in names]
        if not missing:
            if (found := [name for name in names if name in wanted]) != list(wanted):
                raise ValueError(  # mmdet numbers the classes as the file does, and names them as the data set does
                    f"annotation file {path} has its categories as {found[:8]}{' …' if len(found) > 8 else ''}, and the data set "
                    f"its classes as {list(wanted[:8])}: each class needs one category, in the same order"
                )
            return
        hints = {name: near for name in missing if (near := get_close_matches(name, names, n=1))}
        raise ValueError(
            f"annotation file {path} lacks {len(missing)} of the dataset's {len(wanted)} classes: {missing[:8]}"
            f"{' …' if len(missing) > 8 else ''}; it has {names[:8]}{' …' if len(names) > 8 else ''}"
            f"{f'; close ones: {hints}' if hints else ''}. Set metainfo=dict(classes=(…)) to the file's"
        )


@DATASETS.register_module()
class DemoCocoDataset(Generated, CocoDataset):
    """COCO-format demo data, generated under ``data_root`` (``data/demo``) on first use; otherwise :class:`CocoDataset`."""

    METAINFO: ClassVar = {"classes": CLASSES, "palette": PALETTE}
