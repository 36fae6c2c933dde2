"""Loading images without letting a damaged one pass unseen."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from mmcv.transforms import LoadImageFromFile as _LoadImageFromFile
from mmengine.fileio import get
from mmengine.logging import print_log

from mmlisa.registry import TRANSFORMS

# What a whole file of each format ends with; decoders fill a truncated one with grey.
_ENDINGS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND"}
# What libjpeg and libpng print where the pixels of a file are damaged. They have no other way to say it.
_COMPLAINTS = re.compile(
    rb"Corrupt JPEG data.*|Premature end of JPEG.*|Invalid \w+ code.*|Unsupported marker.*|libpng error.*"
)


@TRANSFORMS.register_module()
class LoadImageFromFile(_LoadImageFromFile):
    """mmcv's LoadImageFromFile that notices truncated, damaged and undecodable files.

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
        reason = self._truncation(filename)
        if reason is None:
            try:
                with _captured_stderr() as printed:
                    loaded = super().transform(results)
                    printed.seek(0)
                    complaint = _COMPLAINTS.search(printed.read())
                if complaint is None:
                    return loaded
                reason = complaint[0].decode(errors="replace")
            except (AssertionError, AttributeError) as error:  # mmcv's ways of saying that nothing was decoded
                reason = f"it cannot be decoded ({error})"
        if self.on_corrupt == "error":
            raise ValueError(
                f"image {filename} is damaged: {reason}. LoadImageFromFile(on_corrupt='skip') skips such files"
            )
        print_log(f"skipped the damaged image {filename}: {reason}", logger="current", level=30)
        return None

    def _truncation(self, filename: str) -> str | None:
        content = get(filename, backend_args=self.backend_args)
        for start, end in _ENDINGS.items():
            if content.startswith(start) and end not in content[-1024:]:
                return f"the file ends early, after {len(content)} bytes"
        return None if content else "the file is empty"


@contextlib.contextmanager
def _captured_stderr() -> Iterator[BinaryIO]:
    """What the process writes to its standard error, C libraries included."""
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)
