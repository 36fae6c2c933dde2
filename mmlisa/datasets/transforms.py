"""Loading images without letting a damaged one pass unseen."""

from pathlib import Path

from mmcv.transforms import LoadImageFromFile as _LoadImageFromFile
from mmengine.fileio import get
from mmengine.logging import print_log

from mmlisa.registry import TRANSFORMS

# What a whole file of each format ends with; decoders fill a truncated one with grey and only print to stderr.
_ENDINGS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND"}


@TRANSFORMS.register_module()
class LoadImageFromFile(_LoadImageFromFile):
    """mmcv's LoadImageFromFile that notices truncated and undecodable files.

    Args:
        on_corrupt: ``'error'`` stops and names the file; ``'skip'`` logs its name, and the dataset takes another sample (in
            training; a test set has no other, so it stops there too).
        **kwargs: mmcv's.

    Raises:
        ValueError: a damaged file under ``'error'``, or another ``on_corrupt``.
    """

    def __init__(self, on_corrupt: str = "error", **kwargs) -> None:
        super().__init__(**kwargs)
        if on_corrupt not in ("error", "skip"):
            raise ValueError(f"on_corrupt is {on_corrupt!r}; it must be 'error' or 'skip'")
        self.on_corrupt = on_corrupt

    def transform(self, results: dict) -> dict | None:
        filename = results["img_path"]
        reason = self._damage(filename)
        if reason is None:
            try:
                return super().transform(results)
            except (AssertionError, AttributeError) as error:  # mmcv's ways of saying that nothing was decoded
                reason = f"it cannot be decoded ({error})"
        if self.on_corrupt == "error":
            raise ValueError(
                f"image {filename} is damaged: {reason}. LoadImageFromFile(on_corrupt='skip') passes over such files"
            )
        print_log(f"skipped the damaged image {filename}: {reason}", logger="current", level=30)
        return None

    def _damage(self, filename: str) -> str | None:
        content = get(filename, backend_args=self.backend_args)
        for start, end in _ENDINGS.items():
            if content.startswith(start) and end not in content[-1024:]:
                return f"the file ends early, after {len(content)} bytes"
        return None if content else f"the file is empty ({Path(filename).name})"
