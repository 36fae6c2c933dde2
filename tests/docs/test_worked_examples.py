"""The worked examples of the documentation, done as a reader would: an operator, a host, a data set of one's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.config import Config

from helpers.folders import write_images
from helpers.pages import ROOT, read_blocks
from mmlisa.datasets.annotations import find_bad_annotations
from mmlisa.fit.splitting import prepare_data

pytestmark = pytest.mark.nightly


def run(folder: Path, *words: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    return done.stdout


def write_files(page: str, folder: Path) -> None:
    for block in read_blocks(ROOT / "docs" / page):
        if block.title:
            (folder / block.title).write_text(block.code)


def test_operator_and_host(tmp_path):
    """The pages' own tests pass; test_code_blocks.py builds their configs."""
    for page in ("add_operator.md", "add_host.md"):
        write_files(page, tmp_path)
    tests = sorted(path.name for path in tmp_path.glob("test_*.py"))
    assert "5 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)


def test_own_data_from_pascal_voc(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files("finetune.md", tmp_path)
    (tmp_path / "voc" / "Annotations").mkdir(parents=True)
    for name in write_images(tmp_path / "voc" / "JPEGImages", 5, (96, 64)):
        (tmp_path / "voc" / "Annotations" / name).with_suffix(".xml").write_text(
            f"<annotation><filename>{name}</filename><size><width>96</width><height>64</height><depth>3</depth></size>"
            + "".join(
                f"<object><name>{kind}</name><bndbox><xmin>5</xmin><ymin>6</ymin><xmax>44</xmax>"
                "<ymax>35</ymax></bndbox></object>"
                for kind in ("helmet", "vest")
            )
            + "</annotation>"
        )
    dataset = prepare_data("voc", "detection")
    for part in ("train", "val"):
        path = tmp_path / "data" / "helmets" / "annotations" / f"{part}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataset.to_coco(part)))
        (tmp_path / "data" / "helmets" / part).symlink_to(tmp_path / "voc")
    for part, count in (("train", 4), ("val", 1)):
        content = json.loads((tmp_path / "data" / "helmets" / "annotations" / f"{part}.json").read_text())
        assert 2 * len(content["images"]) == len(content["annotations"]) == 2 * count
        assert not find_bad_annotations(content, with_mask=False)
    refused = check_data(tmp_path, "helmets.py")
    assert "with_mask=False" in refused
    assert "mask_head=None" in refused
    accepted = check_data(tmp_path, "helmet_boxes.py")
    assert "train: objects per class: helmet 4, vest 4" in accepted
    assert accepted.rstrip().endswith("nothing wrong")
    # The base's model, which test_code_blocks.py builds, has no mask head left.
    cfg = Config.fromfile(tmp_path / "helmet_boxes.py")
    assert cfg.model.roi_head.mask_head is None
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        assert not any(step.get("with_mask") for step in loader.dataset.pipeline)
    assert cfg.val_evaluator.metric == "bbox"


def check_data(folder: Path, config: str) -> str:
    words = ["-c", "from mmlisa import cli; cli.main()", "check-data", config]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True)
    return done.stdout + done.stderr
