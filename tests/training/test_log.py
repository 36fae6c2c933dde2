"""What the console does not show."""

import json

from mmlisa.training.log import import_quietly


def test_reading_annotations_prints_nothing(tmp_path, capsys):
    import_quietly()
    from mmdet.datasets.api_wrappers import COCO

    path = tmp_path / "annotations.json"
    image = dict(id=1, file_name="a.png", width=4, height=4)
    box = dict(id=1, image_id=1, category_id=1, bbox=[0, 0, 2, 2], area=4, iscrowd=0)
    path.write_text(json.dumps(dict(images=[image], categories=[dict(id=1, name="cat")], annotations=[box])))
    COCO(str(path))
    assert capsys.readouterr() == ("", "")
