"""Data sets of other packages, on stand-ins of a few images made here."""

import json

import numpy as np
import pytest
from PIL import Image

from mmlisa.registry import DATASETS
from research import packages, solar_cells, tree_crowns

pytest.importorskip("mmpretrain")
pytest.importorskip("mmdet")


@pytest.fixture
def solar_root(tmp_path):
    """700 cells of 4x4 pixels in the layout of elpv-dataset."""
    (tmp_path / "images").mkdir()
    lines = []
    for index in range(700):
        name = f"images/cell{index:04d}.png"
        if index < 2:
            Image.fromarray(np.full((4, 4), 50 * index, np.uint8)).save(tmp_path / name)
        lines.append(f"{name}  {(index % 4) / 3}  {'mono' if index % 2 else 'poly'}\n")
    (tmp_path / "labels.csv").write_text("".join(lines))
    return tmp_path


def _solar(root, split, fold, pipeline=()):
    return DATASETS.build(
        dict(type="SolarCellDataset", split=split, fold=fold, data_root=str(root), pipeline=list(pipeline))
    )


@pytest.mark.slow
def test_solar_cells_are_in_one_test_fold_each(solar_root):
    names = {}
    for fold in range(5):
        for split in ("train", "test"):
            names[split, fold] = [entry["img_path"] for entry in _solar(solar_root, split, fold).load_data_list()]
    tested = [name for fold in range(5) for name in names["test", fold]]
    assert len(tested) == len(set(tested)) == 700
    for fold in range(5):
        assert set(names["train", fold]) == set(tested) - set(names["test", fold])
    # Neighbours stay together: twelve blocks of 60, the last with 40.
    assert [len(names["test", fold]) for fold in range(5)] == [180, 160, 120, 120, 120]
    assert names["test", 0][:60] == [f"{solar_root}/images/cell{i:04d}.png" for i in range(60)]


def test_solar_cells_have_four_grades(solar_root):
    dataset = _solar(
        solar_root, "test", 0, [dict(type="mmpretrain.LoadImageFromFile"), dict(type="mmpretrain.PackInputs")]
    )
    assert [dataset.get_data_info(i)["gt_label"] for i in range(5)] == [0, 1, 2, 3, 0]
    assert len(dataset.metainfo["classes"]) == 4
    sample = dataset[1]
    assert (sample["inputs"] == 50).all()
    assert sample["data_samples"].gt_label.item() == 1


def test_solar_cells_are_linked_into_class_folders(solar_root):
    solar_cells.link_solar_cells(solar_root / "cells", 1, str(solar_root))
    links = sorted((solar_root / "cells").glob("*/*/*"))
    assert len(links) == 700
    assert sum(link.parts[-3] == "val" for link in links) == 160
    link = solar_root / "cells" / "train" / "probably functional" / "cell0001.png"
    assert link.resolve() == solar_root / "images" / "cell0001.png"


def test_solar_cells_refuse_another_fold(solar_root):
    with pytest.raises(ValueError, match="fold is 5"):
        _solar(solar_root, "test", 5)
    with pytest.raises(ValueError, match="'val'"):
        _solar(solar_root, "val", 0)


def test_a_missing_package_is_named():
    with pytest.raises(ImportError, match="pip install --no-deps no-such-distribution"):
        packages.data_folder("no_such_package", "no-such-distribution")


VOC = """<annotation><filename>{name}.png</filename><object><name>Tree</name><bndbox><xmin>{x}</xmin><ymin>{y}</ymin>
<xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object></annotation>"""


@pytest.fixture
def photographs(tmp_path):
    """Two images with a white square each, of 500x300 and 260x260 pixels."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    for name, (height, width), (x, y) in (("large", (300, 500), (248, 20)), ("small", (260, 260), (30, 40))):
        image = np.zeros((height, width, 3), np.uint8)
        image[y : y + 20, x : x + 30] = 255
        Image.fromarray(image).save(folder / f"{name}.png")
        (folder / f"{name}.xml").write_text(VOC.format(name=name, x=x, y=y, x2=x + 30, y2=y + 20))
    return folder


def test_crops_keep_boxes_on_their_objects(photographs):
    large, small = tree_crowns.read_photographs(photographs)
    assert (large.name, small.name) == ("large", "small")
    for photograph in (large, small):
        found = list(tree_crowns.crops(photograph))
        seen = 0
        for image, boxes in found:
            assert image.shape == (256, 256, 3)
            inside = np.zeros((256, 256), bool)
            for x1, y1, x2, y2 in boxes.astype(int):
                inside[y1:y2, x1:x2] = True
                seen += 1
            assert image[inside].all()
            assert image[~inside].sum() <= 0.4 * 600 * 255 * 3  # what is left of a crown that is mostly outside
        # Of the large one, a quarter of the square is in a third crop: no object of that.
        assert seen == {"large": 2, "small": 4}[photograph.name]


def test_tree_crowns_train_on_the_largest_and_test_on_the_others(photographs, tmp_path):
    root = tree_crowns.make_tree_crowns(tmp_path / "crowns", photographs)
    for split, name in (("train", "large"), ("val", "small")):
        content = json.loads((root / "annotations" / f"instances_{split}.json").read_text())
        files = {image["file_name"] for image in content["images"]}
        assert files == {path.name for path in (root / split).iterdir()}
        assert {file.rsplit("_", 1)[0] for file in files} == {name}
        assert content["annotations"]
    dataset = DATASETS.build(
        dict(
            type="TreeCrownDataset",
            data_root=str(root),
            ann_file="annotations/instances_val.json",
            data_prefix=dict(img="val/"),
            pipeline=[dict(type="mmdet.LoadImageFromFile"), dict(type="mmdet.LoadAnnotations", with_bbox=True)],
        )
    )
    assert dataset.metainfo["classes"] == ("tree",)
    assert len(dataset[0]["gt_bboxes"]) == 1


def test_photographs_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="annotated image"):
        tree_crowns.make_tree_crowns(tmp_path / "crowns", tmp_path)
    assert not (tmp_path / "crowns").exists()
