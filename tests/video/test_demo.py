"""The demo clips: what moves how, and that only the order of the frames tells opposites apart."""

import numpy as np
import pytest

from mmlisa.video import DemoVideoDataset
from mmlisa.video.demo import CLASSES, OPPOSITES, Pose, make_clip, make_video_demo, pose_at
from mmlisa.video.reading import read_frames


@pytest.mark.parametrize(
    ("motion", "last"),
    [
        ("right", Pose(20 + 28, 30, 40, 5)),
        ("down", Pose(20, 30 + 28, 40, 5)),
        ("grow", Pose(20, 30, 40 * 1.7, 5)),
        ("turn_left", Pose(20, 30, 40, 95)),
    ],
)
def test_motions(motion, last):
    middle = Pose(20, 30, 40, 5)
    assert pose_at(middle, motion, 0, 100) == middle
    assert pose_at(middle, motion, 1, 100) == pytest.approx(last)


def test_the_drawn_object_moves_as_its_class_says():
    def moments(frame, background):
        ys, xs = np.nonzero(np.abs(frame.astype(int) - background).sum(-1) > 30)
        return xs.mean(), ys.mean(), len(xs)

    for motion in ("right", "down", "grow"):
        clip = make_clip(np.random.default_rng(4), motion, num_frames=9, side=64)
        background = np.median(clip, axis=0) if motion != "grow" else clip[0]
        first, last = moments(clip[0 if motion != "grow" else 2], background), moments(clip[-1], background)
        moved = np.array(last) - first
        assert {"right": moved[0] > 15, "down": moved[1] > 15, "grow": moved[2] > 100}[motion], (motion, moved)


def test_every_clip_has_its_reverse_with_the_opposite_label(demo):
    dataset = DemoVideoDataset(ann_file="val.txt", data_root=str(demo))
    infos = {info["img_path"].rpartition("/")[2]: info for info in map(dataset.get_data_info, range(len(dataset)))}
    assert len(infos) == 8
    assert {CLASSES[info["gt_label"]] for info in infos.values()} == set(CLASSES)
    for motion, opposite in OPPOSITES.items():
        there, back = infos[f"{motion}_000.mp4"], infos[f"{opposite}_000.mp4"]
        assert (CLASSES[there["gt_label"]], CLASSES[back["gt_label"]]) == (motion, opposite)
        clips = [read_frames(info["img_path"], range(16)) for info in (there, back)]
        for t in range(16):  # the encoder sees them in another order, hence not exactly
            assert np.abs(clips[0][t].astype(int) - clips[1][15 - t]).mean() < 6


def test_the_seed_decides(demo):
    clips = [make_clip(np.random.default_rng(seed), "right") for seed in (1, 1, 2)]
    assert np.array_equal(clips[0], clips[1])
    assert not np.array_equal(clips[0], clips[2])
    assert make_video_demo(demo, num_scenes={"train": 1, "val": 1}) == demo
