"""Videos listed in a text file."""

from pathlib import Path
from typing import Any

from mmpretrain.datasets import BaseDataset

from mmlisa.registry import DATASETS


@DATASETS.register_module()
class VideoDataset(BaseDataset):
    """Video files or folders of frames, one per line of ``ann_file``: path, number of frames, label.

    The path, which may contain spaces, is relative to ``data_prefix`` under ``data_root``; the label counts from 0. The
    pipeline starts with :class:`mmlisa.video.LoadClips`. The other arguments are those of mmpretrain's ``BaseDataset``,
    among them ``classes``: their names, or a file with one per line.

    Raises:
        FileNotFoundError: no such list.
        ValueError: an empty list, or a line that is not of this form or has a label without a class; it is quoted.
    """

    def load_data_list(self) -> list[dict[str, Any]]:
        file = Path(self.ann_file)
        if not file.is_file():
            raise FileNotFoundError(f"list of videos {file} does not exist")
        root = Path(self.img_prefix)
        lines = [(number, line) for number, line in enumerate(file.read_text().splitlines(), 1) if line.strip()]
        if not lines:
            raise ValueError(f"list of videos {file} is empty")
        return [self._parse(line, root, f"{file}:{number}") for number, line in lines]

    def _parse(self, line: str, root: Path, where: str) -> dict[str, Any]:
        path, *numbers = line.rsplit(maxsplit=2)
        if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            raise ValueError(f"{where}: {line!r} is not 'path frames label', two of them whole numbers")
        frames, label = map(int, numbers)
        if frames < 1:
            raise ValueError(f"{where}: {line!r} is a video without frames")
        if self.CLASSES is not None and label >= len(self.CLASSES):
            raise ValueError(f"{where}: {line!r} has the label {label}, but there are {len(self.CLASSES)} classes")
        return {"img_path": str(root / path), "num_frames": frames, "gt_label": label}
