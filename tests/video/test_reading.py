"""The right frames, only those, and names for what cannot be read."""

import cv2
import numpy as np
import pytest

from helpers.numbered_frames import number_of, numbered_frames
from mmlisa.video.reading import DamagedVideoError, count_frames, read_frames


@pytest.fixture
def folder(tmp_path):
    for number, frame in enumerate(numbered_frames(12)):
        cv2.imwrite(str(tmp_path / f"{number + 1:05d}.png"), frame)
    (tmp_path / "flow.npy").write_bytes(b"not a frame")
    return tmp_path


# Forwards, backwards, a repetition, and a distance that is sought instead of read.
@pytest.mark.parametrize("positions", [[0], [3, 4, 9], [49, 2, 2], [1, 45], list(range(0, 50, 7))])
def test_frames_of_a_file(video, positions):
    assert count_frames(video) == 50
    frames = read_frames(video, positions)
    assert sorted(frames) == sorted(set(positions))
    for position, frame in frames.items():
        assert frame.shape == (16, 48, 3)
        assert number_of(frame) == position


def test_only_the_frames_of_a_folder_that_are_needed_are_decoded(folder):
    assert count_frames(folder) == 12
    for number in (1, 2, 4):
        (folder / f"{number:05d}.png").write_bytes(b"damaged")
    frames = read_frames(folder, np.array([4, 2]))
    assert {position: number_of(frame) for position, frame in frames.items()} == {2: 2, 4: 4}
    with pytest.raises(DamagedVideoError, match=r"00004\.png"):
        read_frames(folder, [3])
