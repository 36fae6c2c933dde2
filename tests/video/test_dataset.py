"""Lists of videos: what they say, and what is wrong with them."""

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


def test_the_shortest_video_and_the_last_class(tmp_path):
    info = listed(tmp_path, "a.mp4 1 1\n", classes=CLASSES).get_data_info(0)
    assert (info["num_frames"], info["gt_label"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.mp4 0\n", r"list\.txt, line 1: 'a.mp4 0' is not 'path frames label'"),
        ("a.mp4 10 0\nb.mp4 10 smile\n", r"list\.txt, line 2: 'b.mp4 10 smile' is not"),
        ("a.mp4 0 1\n", "is a video without frames"),
        ("a.mp4 10 2\n", "has the label 2, but there are 2 classes"),
        ("a.mp4 10 2\nb.mp4 x 0\nc.mp4 1 1\n", r"line 1: .*and 1 more bad lines"),
        ("a.mp4 " + 5000 * "9" + " 0\n", "line 1: "),
        ("a\0.mp4 10 0\n", "no file name can have"),
        ("\n", "is empty"),
    ],
)
def test_mistakes_are_quoted(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        listed(tmp_path, text, classes=CLASSES)


def test_bad_lines_can_be_left_out(tmp_path):
    dataset = listed(tmp_path, "a.mp4 10 2\nb.mp4 10 1\nc.mp4 0 0\n", classes=CLASSES, on_bad_line="skip")
    assert [dataset.get_data_info(i)["img_path"] for i in range(len(dataset))] == [f"{tmp_path}/b.mp4"]
    assert [problem.split(":")[0] for problem in dataset.problems] == ["line 1", "line 3"]
    with pytest.raises(ValueError, match=r"line 1.*1 more"):
        listed(tmp_path, "a.mp4 10 2\nc.mp4 0 0\n", classes=CLASSES, on_bad_line="skip")  # nothing is left


def test_a_list_that_is_not_text(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"a.mp4 10 0\n\xff\xfe")
    with pytest.raises(ValueError, match=r"list\.txt is not a text file"):
        VideoDataset(ann_file="list.txt", data_root=str(tmp_path))


def test_no_list(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt does not exist"):
        VideoDataset(ann_file="none.txt", data_root=str(tmp_path))


def test_a_damaged_video_is_passed_over_in_training_only(video, tmp_path):
    (tmp_path / "damaged.mp4").write_bytes(b"damaged")
    (tmp_path / "good.mp4").write_bytes(video.read_bytes())
    text = "damaged.mp4 50 0\ngood.mp4 50 1\n"
    pipeline = [dict(type="mmlisa.LoadClips", length=2, on_corrupt="skip"), dict(type="mmlisa.PackClips")]
    assert listed(tmp_path, text, pipeline=pipeline)[0]["data_samples"].gt_label == 1
    with pytest.raises(Exception, match="None"):
        listed(tmp_path, text, pipeline=pipeline, test_mode=True)[0]
