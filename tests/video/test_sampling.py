"""Positions against ones written out by hand."""

import numpy as np
import pytest

from mmlisa.video.sampling import dense_positions, uniform_positions


def test_dense_clips_of_a_test():
    # 100 frames, clips of 16 frames 4 apart span 61: starts may lie from 0 to 39, four of them at 0, 13, 26 and 39.
    positions = dense_positions(100, 16, 4, 4, random=False)
    assert positions[0].tolist() == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60]
    assert positions[:, 0].tolist() == [0, 13, 26, 39]
    assert positions[3, -1] == 99
    assert dense_positions(100, 16, 4, 1, random=False)[0, 0] == 19


def test_dense_clips_of_a_short_video_repeat_its_last_frame():
    assert dense_positions(10, 4, 4, 2, random=False).tolist() == [[0, 4, 8, 9]] * 2


def test_dense_random_starts_reach_every_place_and_no_further():
    np.random.seed(0)
    starts = np.concatenate([dense_positions(20, 4, 4, 2, random=True) for _ in range(200)])
    assert set(starts[:, 0]) == set(range(8))  # 20 frames, a span of 13
    assert (np.diff(starts, axis=1) == 4).all()


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (16, [1, 3, 5, 7, 9, 11, 13, 15]),
        # Segments 0-1, 2-4, 5-6, 7-9, 10-11, 12-14, 15-16, 17-19.
        (20, [1, 3, 6, 8, 11, 13, 16, 18]),
        (8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (5, [0, 0, 1, 1, 2, 3, 3, 4]),
        (1, [0, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_uniform_frames_of_a_test(total, expected):
    assert uniform_positions(total, 8, random=False).tolist() == [expected]


def test_uniform_random_frames_come_from_their_segments():
    np.random.seed(0)
    drawn = np.concatenate([uniform_positions(20, 8, random=True) for _ in range(200)])
    segments = [{0, 1}, {2, 3, 4}, {5, 6}, {7, 8, 9}, {10, 11}, {12, 13, 14}, {15, 16}, {17, 18, 19}]
    assert [set(column) for column in drawn.T] == segments
    # Five frames are repeated in order: every segment is within one.
    assert uniform_positions(5, 8, random=True).tolist() == [[0, 0, 1, 1, 2, 3, 3, 4]]
