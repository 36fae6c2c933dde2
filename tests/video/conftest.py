"""A video whose frames carry their numbers, and a small data set of such videos."""

import pytest

from helpers.numbered_frames import numbered_frames, write_video

pytest.importorskip("mmpretrain")


@pytest.fixture(scope="session")
def video(tmp_path_factory):
    """A video file of 50 numbered frames."""
    path = tmp_path_factory.mktemp("videos") / "fifty frames.mp4"
    write_video(path, numbered_frames(50))
    return path


@pytest.fixture(scope="session")
def clips(tmp_path_factory):
    """A folder with four videos of 16 numbered frames of two classes, forwards and backwards, as train.txt and val.txt."""
    root = tmp_path_factory.mktemp("clips")
    frames = numbered_frames(16)
    for number in range(4):
        write_video(root / f"{number}.mp4", frames if number % 2 else frames[::-1])
    for split in ("train", "val"):
        (root / f"{split}.txt").write_text("".join(f"{number}.mp4 16 {number % 2}\n" for number in range(4)))
    return root
