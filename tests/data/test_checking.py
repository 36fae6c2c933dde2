"""check-data: problems of annotations, images and class maps, and images of two splits."""

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from mmengine.dataset import BaseDataset

from helpers.coco import coco, dataset_cfg
from mmlisa.data.checking import check_splits, look_at_class_maps, look_at_splits


def picture(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.random.default_rng(seed).integers(0, 255, (30, 40, 3), dtype=np.uint8))


def problems_of(scope, **datasets):
    """The problems of each split."""
    loaders = {f"{split}_dataloader": dict(dataset=dataset) for split, dataset in datasets.items()}
    return {each.split: each.problems for each in check_splits(Config(dict(default_scope=scope, **loaders)))}


@pytest.mark.parametrize("kind", ["mmlisa.CocoDataset", "CocoDataset"])
def test_detection(tmp_path, kind):
    pytest.importorskip("mmdet")
    content = coco(dict(bbox=[50, 2, 10, 10]))
    for number, name in enumerate(("good", "size", "cut"), 2):
        content["images"].append(dict(id=number, file_name=f"{name}.jpg", width=40, height=30 + (name == "size")))
    for seed, image in enumerate(content["images"]):
        picture(tmp_path / "images" / image["file_name"], seed)
    (tmp_path / "images" / "cut.jpg").write_bytes((tmp_path / "images" / "good.jpg").read_bytes()[:600])
    cfg = dataset_cfg(tmp_path, content) | dict(type=kind, filter_cfg=dict(filter_empty_gt=True))
    (problems,) = problems_of("mmdet", train=cfg).values()
    places = [problem.removeprefix(f"{tmp_path}/").split(":")[0] for problem in problems]
    assert places == ["a.json", "images/size.jpg", "images/cut.jpg"]
    assert "lies outside" in problems[0]


def test_images_of_two_splits_are_compared(tmp_path):
    pytest.importorskip("mmpretrain")
    for seed, path in ((0, "train/cat"), (1, "train/dog"), (0, "val/cat"), (2, "val/dog")):
        picture(tmp_path / path / "a.png", seed)
    shared = dict(type="CustomDataset", data_root=str(tmp_path))
    found = problems_of("mmpretrain", **{split: dict(shared, data_prefix=split) for split in ("train", "val")})
    assert found == {"train": [], "val": [f"{tmp_path}/val/cat/a.png: the same image is in the training data"]}


@pytest.mark.parametrize(
    ("value", "reduce_zero_label", "right"),
    [(1, False, True), (2, False, False), (2, True, True), (3, True, False), (255, True, True)],
)
def test_classes_of_class_maps(tmp_path, value, reduce_zero_label, right):
    pytest.importorskip("mmseg")
    picture(tmp_path / "images" / "a.png")
    seg_map = np.full((30, 40), 1, np.uint8)
    seg_map[:15] = value
    (tmp_path / "maps").mkdir()
    cv2.imwrite(str(tmp_path / "maps" / "a.png"), seg_map)
    dataset = dict(
        type="BaseSegDataset", data_root=str(tmp_path), data_prefix=dict(img_path="images", seg_map_path="maps"),
        img_suffix=".png", metainfo=dict(classes=("a", "b")), reduce_zero_label=reduce_zero_label, pipeline=[],
    )  # fmt: skip
    problems = problems_of("mmseg", train=dataset)["train"]
    assert [f"holds [{value}]" in problem for problem in problems] == [True] * (not right)
    cv2.imwrite(str(tmp_path / "maps" / "a.png"), seg_map[:10])
    assert "the image (30, 40)" in problems_of("mmseg", train=dataset)["train"][0]


def class_maps(folder, value=1, number=2, suffix=".png", classes=("a", "b"), **options):
    """A data set of maps with the values 1 and, in the last one, ``value``; the images end in .png."""
    for index in range(number):
        picture(folder / "images" / f"{index}.png", index)
        seg_map = np.full((30, 40), value if index == number - 1 else 1, np.uint8)
        (folder / "maps").mkdir(exist_ok=True)
        cv2.imwrite(str(folder / "maps" / f"{index}.png"), seg_map)
    return dict(
        type="BaseSegDataset", data_root=str(folder), data_prefix=dict(img_path="images", seg_map_path="maps"), img_suffix=suffix,
        metainfo=dict(classes=classes), pipeline=[dict(type="LoadImageFromFile"), dict(type="LoadAnnotations")], **options,
    )  # fmt: skip


def look(scope="mmseg", **datasets):
    loaders = {f"{split}_dataloader": dict(dataset=dataset) for split, dataset in datasets.items()}
    return look_at_class_maps(Config(dict(default_scope=scope, **loaders)))


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        ({}, dict(value=255), None),
        (dict(value=2), {}, r"train/maps/1\.png holds the labels \[2\], but train_dataloader\.dataset names 2 classes"),
        ({}, dict(value=7), r"val/maps/1\.png holds the labels \[7\], but val_dataloader"),
        (dict(value=2, reduce_zero_label=True), dict(value=2, reduce_zero_label=True), None),
        (dict(value=2, reduce_zero_label=True), {}, r"reduce_zero_label=True, val_dataloader\.dataset has .*=False"),
        (dict(suffix=".jpg"), {}, r"train/images' ends in img_suffix='\.jpg'; it holds files that end in \.png"),
    ],
)
def test_class_maps_are_looked_at_before_a_training(tmp_path, train, val, message):
    pytest.importorskip("mmseg")
    datasets = dict(train=class_maps(tmp_path / "train", **train), val=class_maps(tmp_path / "val", **val))
    if message is None:
        assert look(**datasets) == look("mmdet", **datasets) == []
    else:
        with pytest.raises(ValueError, match=message):
            look(**datasets)


def test_class_maps_that_were_not_read_are_counted(tmp_path, monkeypatch):
    pytest.importorskip("mmseg")
    monkeypatch.setattr("mmlisa.data.checking._SECONDS", 0)
    assert look(train=class_maps(tmp_path)) == ["read 1 of the 2 class maps of train; mmlisa check-data reads all"]


def test_labels_that_other_steps_may_change_are_not_judged(tmp_path):
    pytest.importorskip("mmseg")
    dataset = class_maps(tmp_path, value=7)
    dataset["pipeline"].append(str.lower)  # a step of another package
    assert look(train=dataset) == [
        "the class maps of train were not judged: steps of another package may change the labels"
    ]
    nameless = class_maps(tmp_path, value=7, classes=())
    assert look(train=nameless) == ["the class maps of train were not judged: the data set names no classes"]
    dataset["pipeline"].pop()
    with pytest.raises(ValueError, match="holds the labels"):
        look(train=dataset)


def test_the_class_maps_of_all_data_sets_are_looked_at(tmp_path):
    pytest.importorskip("mmseg")
    parts = [class_maps(tmp_path / "a"), class_maps(tmp_path / "b", value=7)]
    with pytest.raises(ValueError, match=r"b/maps/1\.png holds the labels"):
        look(train=dict(type="ConcatDataset", datasets=parts))


def folders_of_classes(tmp_path, scope="mmpretrain", **splits):
    """Data sets of class folders, for each split one or, concatenated, several."""
    found = {}
    for split, names in splits.items():
        parts = [dict(type="CustomDataset", data_root=str(tmp_path), data_prefix=name) for name in names]
        found[split] = parts[0] if len(parts) == 1 else dict(type="ConcatDataset", datasets=parts)
    return found


def test_all_data_sets_of_a_loader_are_read(tmp_path):
    pytest.importorskip("mmpretrain")
    for seed, path in enumerate(("one/cat", "one/dog", "two/cat", "two/dog", "val/cat", "val/dog")):
        picture(tmp_path / path / "a.png", seed)
    datasets = folders_of_classes(tmp_path, train=["one", "two"], val=["val"])
    assert problems_of("mmpretrain", **datasets) == {"train": [], "val": []}
    (tmp_path / "two" / "dog" / "a.png").write_bytes(b"no image")
    wrapped = dict(type="RepeatDataset", times=2, dataset=datasets["train"])
    (problem,) = problems_of("mmpretrain", train=wrapped)["train"]
    assert "two/dog/a.png" in problem


def test_validation_data_that_are_the_trainings(tmp_path):
    """The same data set with another pipeline, or files that were saved again."""
    pytest.importorskip("mmpretrain")
    for seed, path in enumerate(("train/cat", "train/dog")):
        picture(tmp_path / path / "a.png", seed)
        image = cv2.imread(str(tmp_path / path / "a.png"))
        (tmp_path / path.replace("train", "again")).mkdir(parents=True)
        cv2.imwrite(str(tmp_path / path.replace("train", "again") / "b.jpg"), image)
    datasets = folders_of_classes(tmp_path, train=["train"], val=["train"], test=["again"])
    datasets["val"]["pipeline"] = [dict(type="LoadImageFromFile")]
    found = problems_of("mmpretrain", **datasets)
    shared = f"all 2 images are in the training data, the first {tmp_path}"
    assert found["train"] == []
    assert found["val"] == [
        "val_dataloader reads a data set of train_dataloader; it needs other data",
        f"{shared}/train/cat/a.png",
    ]
    assert found["test"] == [f"{shared}/again/cat/b.jpg"]
    cfg = Config({f"{split}_dataloader": dict(dataset=dataset) for split, dataset in datasets.items()})
    assert ["val_dataloader reads" in line for line in look_at_splits(cfg)] == [True]


def test_what_was_not_read_is_said(tmp_path):
    pytest.importorskip("mmpretrain")
    for seed, name in enumerate(("cat", "dog")):
        picture(tmp_path / "val" / name / "a.png", seed)
    loader = dict(dataset=folders_of_classes(tmp_path, val=["val"])["val"])
    cfg = Config(dict(default_scope="mmpretrain", train_dataloader=loader, val_dataloader=loader))
    (checked,) = check_splits(cfg, ["val"])
    assert (checked.problems, checked.unread) == ([], ["its images are not compared with those of train"])


def test_annotations_that_are_not_judged_are_counted(tmp_path):
    picture(tmp_path / "a.png")
    (tmp_path / "a.json").write_text('{"metainfo": {}, "data_list": [{"img_path": "a.png"}]}')
    dataset = dict(type=BaseDataset, ann_file=str(tmp_path / "a.json"), data_prefix=dict(img_path=str(tmp_path)))
    (checked,) = check_splits(Config(dict(default_scope="mmengine", train_dataloader=dict(dataset=dataset))))
    assert checked.unread == ["1 samples have annotations that were not judged (BaseDataset)"]


def test_labels_without_a_class(tmp_path):
    pytest.importorskip("mmpretrain")
    picture(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a.png 2")
    dataset = dict(
        type="CustomDataset", ann_file=str(tmp_path / "a.txt"), data_prefix=str(tmp_path), classes=["x", "y"]
    )
    (problem,) = problems_of("mmpretrain", train=dataset)["train"]
    assert "the label 2, but there are 2 classes" in problem


def test_check_data_names_the_suffix_that_no_image_has(tmp_path):
    pytest.importorskip("mmseg")
    with pytest.raises(ValueError, match=r"img_suffix='\.jpeg'"):
        problems_of("mmseg", val=class_maps(tmp_path, suffix=".jpeg"))
