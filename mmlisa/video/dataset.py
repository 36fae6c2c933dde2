"""Videos listed in a text file."""

from pathlib import Path
from typing import Any, Literal

from mmpretrain.datasets import BaseDataset

from mmlisa.registry import DATASETS


@DATASETS.register_module()
class VideoDataset(BaseDataset):
    """Video files or folders of frames, one per line of ``ann_file``: path, number of frames, label.

    The path may contain spaces and is relative to ``data_prefix`` under ``data_root``. Labels count from 0. The pipeline starts
    with :class:`mmlisa.video.LoadClips`.

    Args:
        on_bad_line: ``'error'`` refuses a list with a bad line; ``'skip'`` leaves such lines out. ``problems`` holds them
            afterwards.
        **kwargs: arguments of mmpretrain's ``BaseDataset``, among them ``classes``: their names, or a file with one per line.

    Raises:
        FileNotFoundError: the list does not exist.
        ValueError: the list is not text, has no usable line, or has a bad one, which is quoted.
    """

    def __init__(self, *args: Any, on_bad_line: Literal["error", "skip"] = "error", **kwargs: Any) -> None:
        self.on_bad_line = on_bad_line
        self.problems: list[str] = []
        super().__init__(*args, **kwargs)

    def load_data_list(self) -> list[dict[str, Any]]:
        file = Path(self.ann_file)
        if not file.is_file():
            raise FileNotFoundError(f"list of videos {file} does not exist")
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"list of videos {file} is not a text file: {error}") from error
        videos, self.problems = [], []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                videos.append(self._parse(line))
            except ValueError as error:
                self.problems.append(f"line {number}: {error}")
        if self.problems and (self.on_bad_line == "error" or not videos):
            more = f" (and {len(self.problems) - 1} more bad lines)" if len(self.problems) > 1 else ""
            raise ValueError(f"list of videos {file}, {self.problems[0]}{more}")
        if not videos:
            raise ValueError(f"list of videos {file} is empty")
        return videos

    def _parse(self, line: str) -> dict[str, Any]:
        path, *numbers = line.rsplit(maxsplit=2)
        if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            raise ValueError(f"{line!r} is not 'path frames label', of which the last two are whole numbers")
        frames, label = map(int, numbers)
        if "\0" in path:
            raise ValueError(f"{line!r} contains a character that no file name can have")
        if frames < 1:
            raise ValueError(f"{line!r} is a video without frames")
        if self.CLASSES is not None and label >= len(self.CLASSES):
            raise ValueError(f"{line!r} has the label {label}, but there are {len(self.CLASSES)} classes")
        return {"img_path": str(Path(self.img_prefix, path)), "num_frames": frames, "gt_label": label}
