"""Lists of videos."""

import pytest

from mmlisa.video import VideoDataset

CLASSES = ("a", "b")


def listed(tmp_path, text: str, **options) -> VideoDataset:
    (tmp_path / "list.txt").write_text(text)
    return VideoDataset(ann_file="list.txt", data_root=str(tmp_path), **options)


def test_lines(tmp_path):
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
def test_a_mistake_is_quoted(tmp_path, text):
    with pytest.raises(ValueError, match=rf"list\.txt: '{text.strip()}'"):
        listed(tmp_path, f"fine.mp4 3 0\n{text}", classes=CLASSES)


def test_a_damaged_video_is_passed_over_in_training_only(video, tmp_path):
    (tmp_path / "damaged.mp4").write_bytes(b"damaged")
    (tmp_path / "good.mp4").write_bytes(video.read_bytes())
    text = "damaged.mp4 50 0\ngood.mp4 50 1\n"
    pipeline = [dict(type="mmlisa.LoadClips", length=2, on_corrupt="skip"), dict(type="mmlisa.PackClips")]
    assert listed(tmp_path, text, pipeline=pipeline)[0]["data_samples"].gt_label == 1
    with pytest.raises(Exception, match="None"):
        listed(tmp_path, text, pipeline=pipeline, test_mode=True)[0]
