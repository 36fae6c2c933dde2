"""NumPy's archives: all kinds are read, and none grows to much more than its size."""

import io
import struct
import zipfile

import numpy as np
import pytest

from mmlisa.checkpoints import CheckpointError
from mmlisa.conversion.arrays import read_npz


def test_arrays(tmp_path):
    arrays = {"conv_w": np.random.rand(2, 3).astype("f4"), "step": np.int64(3)}
    for packed in (np.savez, np.savez_compressed):
        packed(tmp_path / "a.npz", **arrays)
        loaded = read_npz(tmp_path / "a.npz")
        assert all(np.array_equal(loaded[name], arrays[name]) for name in arrays)
    np.savez(tmp_path / "object.npz", a=np.array([{}], dtype=object))
    with pytest.raises(CheckpointError):
        read_npz(tmp_path / "object.npz")
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", 80)
    header += b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }".ljust(79) + b"\n"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a.npy", header)
    bomb = tmp_path / "bomb.npz"
    bomb.write_bytes(stream.getvalue())
    with pytest.raises(CheckpointError, match=r"array of shape"):  # before numpy makes room for it
        read_npz(bomb)


def test_arrays_that_are_large_or_compress_well(tmp_path):
    """Either bound allows them: 65 MiB as they are, and 16 MiB of zeros."""
    for packed, size in ((np.savez, 65), (np.savez_compressed, 16)):
        packed(tmp_path / "a.npz", a=np.zeros(size * 2**20, np.uint8))
        assert read_npz(tmp_path / "a.npz")["a"].nbytes == size * 2**20


def test_a_compressed_array_file_does_not_unpack_to_much_more(tmp_path):
    np.savez_compressed(tmp_path / "zeros.npz", a=np.zeros(20 * 2**20))  # 160 MiB in 160 KiB
    with pytest.raises(CheckpointError, match="much larger than the file"):
        read_npz(tmp_path / "zeros.npz")
