"""A COCO file of one image and a few annotations, and the dataset that reads it."""

import json

SQUARE = [[2, 2, 12, 2, 12, 12, 2, 12]]


def coco(*annotations, **image):
    """A file of one good annotation, number 1, and more."""
    entry = dict(image_id=1, category_id=7, bbox=[2, 2, 10, 10], area=100, segmentation=SQUARE, iscrowd=0)
    return dict(
        images=[dict(id=1, file_name="a.png", width=40, height=30) | image],
        categories=[dict(id=7, name="cat")],
        annotations=[entry | dict(id=i + 1) | changes for i, changes in enumerate([{}, *annotations])],
    )


def dataset_cfg(folder, content, **options):
    (folder / "a.json").write_text(json.dumps(content))
    return dict(
        type="mmlisa.CocoDataset", data_root=str(folder), ann_file="a.json", data_prefix=dict(img="images"),
        metainfo=dict(classes=("cat",)), pipeline=[dict(type="mmdet.LoadAnnotations", with_bbox=True, with_mask=True)], **options,
    )  # fmt: skip
