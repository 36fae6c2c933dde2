"""A video whose frames carry their numbers, and a few of the demo clips."""

import pytest

from helpers.numbered_frames import numbered_frames

pytest.importorskip("mmpretrain")

from mmlisa.video.demo import make_video_demo
from mmlisa.visualization.overlays import write_video


@pytest.fixture(scope="session")
def video(tmp_path_factory):
    """A video file of 50 numbered frames."""
    path = tmp_path_factory.mktemp("videos") / "fifty frames.mp4"
    write_video(path, numbered_frames(50), 8)
    return path


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    """The demo clips, one scene of each pair of opposites per split: 8 and 8 clips."""
    return make_video_demo(tmp_path_factory.mktemp("demo") / "clips", num_scenes={"train": 1, "val": 1}, progress=False)
