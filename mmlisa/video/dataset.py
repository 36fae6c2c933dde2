"""Videos listed in a text file."""

from pathlib import Path
from typing import Any

from mmpretrain.datasets import BaseDataset

from mmlisa.errors import UserError
from mmlisa.registry import DATASETS


@DATASETS.register_module()
class VideoDataset(BaseDataset):
    """mmpretrain's ``BaseDataset`` of videos or folders of frames, one per line of ``ann_file``: path, number of frames, label.

    The path may contain spaces and is relative to ``data_prefix`` under ``data_root``. Labels count from 0. The pipeline starts
    with :class:`mmlisa.video.LoadClips`. An invalid line is quoted in a UserError.
    """

    def load_data_list(self) -> list[dict[str, Any]]:
        videos = []
        for line in filter(str.strip, Path(self.ann_file).read_text(encoding="utf-8").splitlines()):
            path, *numbers = line.rsplit(maxsplit=2)
            if len(numbers) != 2 or not all(number.isdecimal() for number in numbers) or int(numbers[0]) < 1:
                raise UserError(f"{self.ann_file}: {line!r} is not 'path frames label' with at least 1 frame")
            frames, label = map(int, numbers)
            if self.CLASSES is not None and label >= len(self.CLASSES):
                raise UserError(f"{self.ann_file}: {line!r} has a label of more than {len(self.CLASSES)} classes")
            videos.append({"img_path": str(Path(self.img_prefix, path)), "num_frames": frames, "gt_label": label})
        return videos
