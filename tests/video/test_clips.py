"""Lists of videos, the frames of clips, written out by hand, and transforms of their frames."""

import random

import numpy as np
import pytest
import torch

from helpers.numbered_frames import number_of, numbered_frames, write_video
from mmlisa.video import LoadClips, PackClips, PerFrame, VideoDataset
from mmlisa.video.clips import dense_positions, read_frames, uniform_positions

CLASSES = ("a", "b")


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """A video file of 50 numbered frames."""
    path = tmp_path_factory.mktemp("videos") / "fifty frames.mp4"
    write_video(path, numbered_frames(50))
    return path


def numbers(clips: list) -> list[list[int]]:
    return [[number_of(frame) for frame in clip] for clip in clips]


def listed(tmp_path, text: str, **options) -> VideoDataset:
    (tmp_path / "list.txt").write_text(text)
    return VideoDataset(ann_file="list.txt", data_root=str(tmp_path), **options)


def test_lines_of_a_list(tmp_path):
    dataset = listed(
        tmp_path, "air drumming/one two.mp4 300 1\n\nframes/b 24 0\n", data_prefix="videos", classes=CLASSES
    )
    paths, counts, labels = zip(
        *((info["img_path"], info["num_frames"], info["gt_label"]) for info in map(dataset.get_data_info, range(2))),
        strict=True,
    )
    assert paths == (f"{tmp_path}/videos/air drumming/one two.mp4", f"{tmp_path}/videos/frames/b")
    assert (counts, labels) == ((300, 24), (1, 0))
    assert dataset.CLASSES == CLASSES


@pytest.mark.parametrize("text", ["a.mp4 0\n", "b.mp4 10 smile\n", "a.mp4 0 1\n", "a.mp4 10 2\n"])
def test_a_mistake_in_a_list_is_quoted(tmp_path, text):
    with pytest.raises(ValueError, match=rf"list\.txt: '{text.strip()}'"):
        listed(tmp_path, f"fine.mp4 3 0\n{text}", classes=CLASSES)


# Forwards, backwards, a repetition, and a distance that is sought instead of read.
@pytest.mark.parametrize("positions", [[0], [3, 4, 9], [49, 2, 2], [1, 45], list(range(0, 50, 7))])
def test_frames_are_read_by_their_numbers(video, positions):
    frames = read_frames(video, positions)
    assert sorted(frames) == sorted(set(positions))
    for position, frame in frames.items():
        assert frame.shape == (16, 48, 3)
        assert number_of(frame) == position


def test_dense_random_starts_reach_every_place_and_no_further():
    np.random.seed(0)
    starts = np.concatenate([dense_positions(20, 4, 4, 2, random=True) for _ in range(200)])
    assert set(starts[:, 0]) == set(range(8))  # 20 frames, a span of 13
    assert (np.diff(starts, axis=1) == 4).all()


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        # Segments 0-1, 2-4, 5-6, 7-9, 10-11, 12-14, 15-16, 17-19.
        (20, [1, 3, 6, 8, 11, 13, 16, 18]),
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


def test_clips_of_a_video(video):
    dense = LoadClips(4, stride=8, num_clips=3)({"img_path": str(video)})
    assert numbers(dense["clips"]) == [[0, 8, 16, 24], [12, 20, 28, 36], [25, 33, 41, 49]]
    assert numbers(LoadClips(4, stride=8)({"img_path": str(video)})["clips"]) == [[12, 20, 28, 36]]
    assert numbers(LoadClips(5)({"img_path": str(video)})["clips"]) == [[5, 15, 25, 35, 45]]
    # A list that says less than the file is believed.
    assert numbers(LoadClips(5)({"img_path": str(video), "num_frames": 10})["clips"]) == [[1, 3, 5, 7, 9]]


def test_damaged_and_short_videos(video, tmp_path):
    """A test stops, a training takes another video; a path without a file stops both."""
    damaged, short = tmp_path / "damaged.mp4", tmp_path / "short.mp4"
    damaged.write_bytes(video.read_bytes()[:500])
    write_video(short, numbered_frames(3))
    with pytest.raises(ValueError, match=r"damaged\.mp4 cannot be opened"):
        LoadClips(2)({"img_path": str(damaged)})
    assert LoadClips(2, random=True)({"img_path": str(damaged)}) is None
    with pytest.raises(FileNotFoundError, match="folder"):
        LoadClips(2, random=True)({"img_path": str(tmp_path)})
    # The list says 9 frames, the file has 3.
    with pytest.raises(ValueError, match=r"short\.mp4 ends early"):
        LoadClips(2)({"img_path": str(short), "num_frames": 9})
    assert numbers(LoadClips(3, stride=2)({"img_path": str(short)})["clips"]) == [[0, 2, 2]]


def test_uniform_sampling_has_one_clip():
    with pytest.raises(ValueError, match="num_clips=4"):
        LoadClips(8, num_clips=4)


@pytest.mark.parametrize("draw", [random.random, np.random.random, lambda: torch.rand(()).item()])
def test_the_frames_of_a_clip_share_what_a_transform_draws_from_any_generator(draw):
    clips = [[np.zeros((2, 2, 3))] * 3] * 2
    first, second = PerFrame([lambda results: {**results, "img": results["img"] + draw()}])({"clips": clips})["clips"]
    for clip in (first, second):
        assert all(np.array_equal(frame, clip[0]) for frame in clip)
    assert not np.array_equal(first[0], second[0])


def test_packing():
    frames = np.random.default_rng(0).integers(0, 256, (2, 5, 8, 9, 3), dtype=np.uint8)
    packed = PackClips()({"clips": [list(clip) for clip in frames], "gt_label": 3, "img_path": "a.mp4"})
    assert packed["inputs"].shape == (2, 3, 5, 8, 9)
    assert packed["inputs"].dtype == torch.uint8
    assert packed["inputs"][1, 2, 4, 6, 7] == frames[1, 4, 6, 7, 2]
    assert packed["data_samples"].gt_label.tolist() == [3]
    assert packed["data_samples"].img_path == "a.mp4"
