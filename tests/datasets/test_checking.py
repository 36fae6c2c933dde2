"""check-data: what is wrong is listed once per kind, and what the data consist of is counted."""

import json
from typing import ClassVar

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image

from mmlisa.datasets.checking import Finding, Report, build_dataset, check_dataset, find_shared, group

pytest.importorskip("mmdet")
from mmdet.datasets import CocoDataset
from mmengine.registry import DATASETS

RNG = np.random.default_rng(0)


def picture(path, width=40, height=30):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), RNG.integers(0, 255, (height, width, 3), dtype=np.uint8))


def square(number, image, x=2, y=2, side=10, category=7, **changes):
    outline = [[x, y, x + side, y, x + side, y + side, x, y + side]]
    return dict(id=number, image_id=image, category_id=category, bbox=[x, y, side, side], area=side**2, iscrowd=0,
                segmentation=outline, **changes)  # fmt: skip


@pytest.fixture
def detection(tmp_path):
    """Three images of two classes, the third without an object: a config, and the content of its annotation file to change."""
    for name in "abc":
        picture(tmp_path / "images" / f"{name}.png", 200, 150)
    content = dict(
        images=[dict(id=i, file_name=f"{name}.png", width=200, height=150) for i, name in enumerate("abc", 1)],
        categories=[dict(id=7, name="cat"), dict(id=9, name="dog")],
        annotations=[square(1, 1), square(2, 1, 20, 20, 33), square(3, 2, 5, 5, 100)],
    )
    dataset = dict(
        type="CocoDataset", data_root=str(tmp_path), ann_file="a.json", data_prefix=dict(img="images"),
        metainfo=dict(classes=("cat", "dog")), filter_cfg=dict(filter_empty_gt=True),
        pipeline=[dict(type="mmdet.LoadAnnotations", with_bbox=True, with_mask=True)],
    )  # fmt: skip

    def report(**options) -> Report:
        (tmp_path / "a.json").write_text(json.dumps(content))
        cfg = Config(dict(default_scope="mmdet", train_dataloader=dict(dataset=dataset | options)))
        return check_dataset(build_dataset(cfg, "train"))

    return content, report


def lines(report, folder):
    return [str(finding).replace(f"{folder}/", "") for finding in report.findings]


def test_good_detection_data_are_summarised(detection):
    report = detection[1]()
    assert report.findings == []
    assert report.summary() == [
        "3 images or videos, 1 of them without annotations",
        "objects per class: cat 3",
        "1 of 2 classes have no objects: dog",
        "sizes: small (below 32 x 32 pixels) 1, medium 1, large (above 96 x 96) 1",
    ]


def test_everything_wrong_with_detection_data_is_listed(detection, tmp_path):
    content, report = detection
    content["annotations"].append(square(4, 3, 5, 5, 10) | dict(area=-1))
    content["images"][0]["height"] = 151
    content["images"].append(dict(id=9, file_name="none.png", width=5, height=5))
    (tmp_path / "images" / "b.png").write_bytes(b"no image")
    assert lines(report(), tmp_path) == [
        "a.json: annotation 4: area is -1 (c.png)",
        "images/a.png: the image is 200 x 150 pixels, its annotation says 200 x 151",
        "images/b.png: is damaged: it is not an image, or its format is unknown",
        "images/none.png: the image does not exist",
    ]


def test_a_subclass_of_mmdets_dataset_is_built_as_it_is(detection):
    @DATASETS.register_module(force=True)
    class OwnCocoDataset(CocoDataset):
        pass

    report = detection[1](type="OwnCocoDataset")
    assert (report.images, report.findings) == (3, [])


def test_types_may_be_classes(detection, tmp_path):
    """New-style configs hold them instead of names."""
    content, report = detection
    content["annotations"].append(square(4, 3, 5, 5, 10) | dict(area=-1))
    found = report(type=CocoDataset)
    assert lines(found, tmp_path) == ["a.json: annotation 4: area is -1 (c.png)"]
    assert found.images == 3, "the filter is off"


def test_data_without_any_annotation_are_wrong(detection, tmp_path):
    content, report = detection
    content["annotations"].clear()
    assert lines(report(), tmp_path) == ["a.json: none of the 3 images has annotations"]


def test_boxes_by_two_corners_are_wrong(detection, tmp_path):
    content, report = detection
    for entry in content["annotations"]:
        entry["bbox"] = [150, 100, 190, 140]
    assert "Are they (x1, y1, x2, y2)?" in lines(report(), tmp_path)[0]


def test_a_class_of_crowds_is_wrong(detection, tmp_path):
    """A single crowd is not."""
    content, report = detection
    content["annotations"] += [square(4, 1, category=9) | dict(iscrowd=1)]
    found = report()
    assert found.findings == []
    assert "1 objects are crowds or difficult; training and evaluation ignore them" in found.summary()
    content["annotations"] += [square(5, 2, category=9) | dict(iscrowd=1), square(6, 3) | dict(iscrowd=1)]
    (line,) = lines(report(), tmp_path)
    assert line.startswith(
        "a.json: most annotations of dog are crowds (iscrowd=1), which training and evaluation ignore."
    )


def test_repeated_findings_are_grouped():
    findings = [
        Finding("a.json", f"annotation {i}: bbox [{i}, 2, 0, 3] is smaller than a pixel (im/{i}.png)") for i in range(9)
    ]
    findings.insert(4, Finding("b.png", "the image does not exist"))
    assert group(findings) == [*map(str, findings[:3]), "… and 6 more like this", "b.png: the image does not exist"]
    assert group(findings[:3]) == [str(finding) for finding in findings[:3]]


def test_images_in_training_and_validation_are_found_by_content(tmp_path):
    from mmpretrain.datasets import CustomDataset

    for split in ("train", "val"):
        for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
            picture(tmp_path / split / name)
    (tmp_path / "val" / "dog" / "7.png").write_bytes((tmp_path / "train" / "cat" / "2.png").read_bytes())
    train, val = (check_dataset(CustomDataset(str(tmp_path), data_prefix=split)) for split in ("train", "val"))
    (shared,) = find_shared(train, val)
    assert str(shared).endswith(f"val/dog/7.png: the same image is in the training data, {tmp_path}/train/cat/2.png")
    assert val.summary()[1] == "images per class: cat 2, dog 2"


def test_labels_that_no_class_has_are_named(tmp_path):
    from mmpretrain.datasets import CustomDataset

    picture(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.png 2\na.png 0\na.png -1\n")
    names = dict(classes=("cat", "dog"))
    report = check_dataset(CustomDataset(str(tmp_path), ann_file=str(tmp_path / "list.txt"), metainfo=names))
    expected = [f"a.png: the labels [{label}] do not exist, the highest is 1" for label in (2, -1)]
    assert lines(report, tmp_path) == expected


def test_images_that_lie_in_one_file_are_counted():
    """As CIFAR has them."""
    from mmpretrain.datasets import BaseDataset

    class Digits(BaseDataset):
        METAINFO: ClassVar = dict(classes=("one", "two"))

        def load_data_list(self):
            return [dict(img=np.zeros((8, 8)), gt_label=label) for label in (0, 1, 1)]

    report = check_dataset(Digits(ann_file=""))
    assert (report.images, report.findings, report.counts) == (3, [], {0: 1, 1: 2})


def maps(tmp_path, values, **options):
    """The report on one image of 4 x 6 pixels with a class map."""
    from mmseg.datasets import BaseSegDataset

    picture(tmp_path / "images" / "a.jpg", 6, 4)
    (tmp_path / "maps").mkdir()
    if isinstance(values, bytes):
        (tmp_path / "maps" / "a.png").write_bytes(values)
    else:
        Image.fromarray(np.asarray(values, np.uint8)).save(tmp_path / "maps" / "a.png")
    options = dict(metainfo=dict(classes=("road", "car", "tree"))) | options
    dataset = BaseSegDataset(
        data_root=str(tmp_path), data_prefix=dict(img_path="images", seg_map_path="maps"), **options
    )
    return check_dataset(dataset)


@pytest.mark.parametrize(
    ("reduce_zero_label", "value", "right"),
    [
        (False, 0, True),
        (False, 2, True),
        (False, 3, False),
        (False, 255, True),
        (True, 0, True),
        (True, 3, True),
        (True, 4, False),
    ],
)
def test_classes_of_class_maps(tmp_path, reduce_zero_label, value, right):
    values = np.full((4, 6), 1)
    values[0, :3] = value
    report = maps(tmp_path, values, reduce_zero_label=reduce_zero_label)
    highest = 2 + reduce_zero_label
    expected = [] if right else [f"maps/a.png: the classes [{value}] do not exist, the highest is {highest}"]
    assert lines(report, tmp_path) == expected
    assert report.counts[1 - reduce_zero_label] == 21 + 3 * (value == 1)
    ignored = value == 255 or (reduce_zero_label and value == 0)
    assert sum(report.counts.values()) == (21 if ignored else 24)


def test_pixels_of_each_class_are_counted(tmp_path):
    values = np.zeros((4, 6))
    values[:, :3] = 2
    values[0] = 255
    assert maps(tmp_path, values).summary() == [
        "1 images or videos, 0 of them without annotations",
        "pixels per class: road 50.0%, tree 50.0%",
        "1 of 3 classes have no pixels: car",
    ]


def test_renamed_classes_of_class_maps(tmp_path):
    """mmseg maps the labels of its own list of classes to those that metainfo chooses."""
    from mmseg.datasets import BaseSegDataset

    class Streets(BaseSegDataset):
        METAINFO: ClassVar = dict(classes=("road", "car", "tree"), palette=[[0, 0, 0], [1, 1, 1], [2, 2, 2]])

    picture(tmp_path / "images" / "a.jpg", 6, 4)
    (tmp_path / "maps").mkdir()
    values = np.zeros((4, 6), np.uint8)
    values[0] = 2
    Image.fromarray(values).save(tmp_path / "maps" / "a.png")
    prefix = dict(img_path="images", seg_map_path="maps")
    report = check_dataset(Streets(data_root=str(tmp_path), data_prefix=prefix, metainfo=dict(classes=("tree", "car"))))
    assert report.findings == []
    assert report.counts[0] == 6  # tree


@pytest.mark.parametrize(
    ("values", "label_map", "reduce_zero_label", "counts", "wrong"),
    [
        ([0, 0, 0, 255], {255: 1}, False, {0: 18, 1: 6}, []),  # a mask in black and white
        ([0, 0, 1, 2], {0: 255, 1: 0, 2: 1}, False, {0: 6, 1: 6}, []),  # a class that metainfo leaves out
        ([0, 1, 2, 255], {0: 1, 255: 0}, True, {0: 12, 1: 12}, []),  # values after the reduction: 255, 0, 1, 255
        ([0, 0, 7, 255], {255: 1}, False, {0: 12, 1: 6, 7: 6}, ["[7] do not exist, the highest is 1"]),
        ([0, 0, 1, 255], {255: 2}, False, {0: 12, 1: 6, 2: 6}, ["[255] do not exist, the highest is 1"]),
    ],
)
def test_values_that_stand_for_other_classes(tmp_path, values, label_map, reduce_zero_label, counts, wrong):
    """As mmseg's LoadAnnotations reads them: 255 is a value like the others until they are renamed."""
    from mmseg.datasets.transforms import LoadAnnotations

    from mmlisa.datasets.segmentation import PairedSegDataset

    picture(tmp_path / "a.jpg", 6, 4)
    Image.fromarray(np.repeat(np.uint8(values), 6).reshape(4, 6)).save(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.jpg\ta.png\n")
    dataset = PairedSegDataset(
        data_root=str(tmp_path), ann_file=str(tmp_path / "list.txt"), metainfo=dict(classes=("background", "object")),
        label_map=label_map, reduce_zero_label=reduce_zero_label,
    )  # fmt: skip
    report = check_dataset(dataset)
    assert report.counts == counts
    assert lines(report, tmp_path) == [f"a.png: the classes {reason}" for reason in wrong]
    read = LoadAnnotations()(dataset.get_data_info(0))["gt_seg_map"]
    assert counts == {label: (read == label).sum() for label in {*read.ravel().tolist()} - {255}}


PNG = Image.fromarray(RNG.integers(0, 3, (4, 6), dtype=np.uint8))


def damaged_png(how):
    import io

    file = io.BytesIO()
    PNG.save(file, format="PNG")
    content = bytearray(file.getvalue())
    data = content.index(b"IDAT") + 6
    if how == "flipped":
        content[data] ^= 4
    return bytes({"cut": content[: data + 3], "empty": b"", "text": b"hello", "flipped": content}[how])


@pytest.mark.parametrize("how", ["cut", "empty", "text", "flipped"])
def test_damaged_class_maps_are_named(tmp_path, how):
    (line,) = lines(maps(tmp_path, damaged_png(how)), tmp_path)
    assert line.startswith("maps/a.png: is damaged: ")


def test_class_maps_of_another_size_or_in_colour_are_named(tmp_path):
    assert lines(maps(tmp_path, np.zeros((4, 6, 3))), tmp_path) == [
        "maps/a.png: the class map is 6 x 4 x 3, the image 6 x 4 pixels"
    ]
    (other := tmp_path / "other").mkdir()
    assert lines(maps(other, np.zeros((6, 4))), other) == ["maps/a.png: the class map is 4 x 6, the image 6 x 4 pixels"]


def test_a_missing_class_map_is_named(tmp_path):
    report = maps(tmp_path, np.zeros((4, 6)))
    assert report.findings == []
    from mmseg.datasets import BaseSegDataset

    dataset = BaseSegDataset(data_root=str(tmp_path), data_prefix=dict(img_path="images", seg_map_path="none"), lazy_init=True,
                             metainfo=dict(classes=("road",)))  # fmt: skip
    (line,) = lines(check_dataset(dataset), tmp_path)
    assert "none/a.png: the class map of" in line


def test_bad_lists_of_videos(tmp_path):
    pytest.importorskip("mmpretrain")
    (tmp_path / "list.txt").write_text("none.mp4 3 0\nnone.mp4 0 0\n")
    dataset = dict(
        type="mmlisa.VideoDataset", ann_file="list.txt", data_root=str(tmp_path), metainfo=dict(classes=("a",))
    )
    cfg = Config(dict(default_scope="mmpretrain", train_dataloader=dict(dataset=dataset)))
    assert lines(check_dataset(build_dataset(cfg, "train")), tmp_path) == [
        "list.txt: line 2: 'none.mp4 0 0' is a video without frames",
        "none.mp4: video none.mp4 does not exist",
    ]


def test_a_class_map_5000_pixels_wide(tmp_path):
    """Width and height are not exchanged, and the last column is read."""
    from mmseg.datasets import BaseSegDataset

    values = np.zeros((3, 5000), np.uint8)
    values[:, -1] = 1
    picture(tmp_path / "images" / "a.jpg", 5000, 3)
    (tmp_path / "maps").mkdir()
    Image.fromarray(values).save(tmp_path / "maps" / "a.png")
    prefix = dict(img_path="images", seg_map_path="maps")
    report = check_dataset(
        BaseSegDataset(data_root=str(tmp_path), data_prefix=prefix, metainfo=dict(classes=("a", "b")))
    )
    assert report.findings == []
    assert report.counts == {0: 3 * 4999, 1: 3}


def test_one_data_set_is_checked_at_a_time():
    joined = dict(type="ConcatDataset", datasets=[dict(type="CocoDataset", ann_file="a.json")] * 2)
    cfg = Config(dict(default_scope="mmdet", train_dataloader=dict(dataset=dict(type="RepeatDataset", dataset=joined))))
    with pytest.raises(ValueError, match="is a ConcatDataset; check one data set at a time"):
        build_dataset(cfg, "train")


def test_the_formats_of_the_config_are_read(detection, tmp_path):
    content, report = detection
    for name in "abc":
        Image.open(tmp_path / "images" / f"{name}.png").save(tmp_path / "images" / f"{name}.webp", lossless=True)
    for image in content["images"]:
        image["file_name"] = image["file_name"].replace("png", "webp")
    assert "unsupported format WEBP" in lines(report(), tmp_path)[0]
    loader = dict(type="mmlisa.LoadImageFromFile", formats=("WEBP",))
    assert lines(report(pipeline=[loader, dict(type="mmdet.LoadAnnotations", with_bbox=True)]), tmp_path) == []
