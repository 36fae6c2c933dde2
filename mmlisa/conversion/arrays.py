"""NumPy archives (``.npz``), in which PaddleDetection's weights are passed on."""

import io
import zipfile
from pathlib import Path

import numpy as np

from mmlisa.checkpoints import CheckpointError

# A compressed archive may grow to this many times its own size, or to this many bytes.
_MAX_EXPANSION, _ALWAYS_ALLOWED = 8, 64 * 2**20


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an archive; their sizes are checked before memory is allocated.

    Raises:
        CheckpointError: the file is damaged, grows to much more than its size, or holds other things than arrays of numbers.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > max(_MAX_EXPANSION * path.stat().st_size, _ALWAYS_ALLOWED):
                raise ValueError("members much larger than the file")
            return {entry.filename.removesuffix(".npy"): _read_array(archive.read(entry)) for entry in entries}
    except Exception as error:
        raise CheckpointError(f"{path} is truncated, damaged or not an archive of arrays: {error}") from error


def _read_array(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    if dtype.hasobject or int(np.prod(shape, dtype=object)) * dtype.itemsize > len(content):
        raise ValueError(f"an array of shape {shape} in {len(content)} bytes")
    stream.seek(0)
    return np.load(stream, allow_pickle=False)
