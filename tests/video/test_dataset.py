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
