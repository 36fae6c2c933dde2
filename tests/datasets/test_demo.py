"""The offline demo data: deterministic, atomic, and its masks exactly what was pasted."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from mmlisa.datasets import demo
from mmlisa.datasets.demo_objects import CLASSES, load_backgrounds, load_objects

SMALL = {"train": 10, "val": 6}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return demo.make_demo(tmp_path_factory.mktemp("data") / "demo", num_images=SMALL, progress=False)


def _rasterise(polygons: list[list[float]], shape: tuple[int, int]) -> np.ndarray:
    return coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(polygons, *shape))).astype(bool)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_cutouts_have_clean_masks():
    objects = load_objects()
    assert tuple(objects) == CLASSES
    assert len(objects["coin"]) == 23
    for name, cutouts in objects.items():
        for cutout in cutouts:
            alpha = cutout[..., 3]
            assert cutout.min() >= 0
            assert (cutout[..., :3] <= alpha[..., None] + 1e-3).all(), f"{name} is not premultiplied"
            assert cv2.connectedComponents((alpha >= 0.5).astype(np.uint8))[0] == 2, f"{name} is not in one piece"
            assert 0.3 < (alpha >= 0.5).mean() < 0.95


def test_backgrounds_are_large_enough_and_in_colour():
    for name, image in load_backgrounds().items():
        assert image.dtype == np.uint8, name
        assert image.shape[2] == 3, name
        assert min(image.shape[:2]) >= 185, name


@pytest.mark.parametrize("split", SMALL)
def test_coco_layout(root, split):
    coco = COCO(root / "annotations" / f"instances_{split}.json")
    assert len(coco.imgs) == SMALL[split]
    assert tuple(category["name"] for category in coco.dataset["categories"]) == CLASSES
    for image in coco.imgs.values():
        picture = cv2.imread(str(root / split / image["file_name"]))
        assert picture.shape[:2] == (image["height"], image["width"])
        assert 120 <= min(picture.shape[:2]) <= max(picture.shape[:2]) <= 210
    counts = [len(coco.getAnnIds(image_id)) for image_id in sorted(coco.imgs)]
    assert counts.count(0) == 1
    assert [a["image_id"] for a in coco.anns.values() if a["iscrowd"]] == [1]
    (tiny,) = coco.imgToAnns[3]
    assert 0 < tiny["area"] < 64
    for annotation in coco.anns.values():
        mask = coco.annToMask(annotation)
        assert mask.sum() == annotation["area"]
        assert list(cv2.boundingRect(mask)) == annotation["bbox"]


def test_written_masks_are_the_visible_parts_of_what_was_composed(root):
    coco = COCO(root / "annotations" / "instances_train.json")
    for image_id, scene in enumerate(demo.make_scenes("train", SMALL["train"]), 1):
        annotations = coco.imgToAnns[image_id]
        assert len(annotations) == len(scene.instances)
        covered = np.zeros(scene.class_map.shape, int)
        for annotation, instance in zip(annotations, scene.instances, strict=True):
            np.testing.assert_array_equal(coco.annToMask(annotation), instance.mask)
            assert isinstance(annotation["segmentation"], dict if instance.iscrowd else list)
            assert (scene.class_map[instance.mask] == instance.label + 1).all()
            covered += instance.mask
        np.testing.assert_array_equal(covered, scene.class_map > 0)  # disjoint, and nothing is left unannotated
        stored = cv2.imread(str(root / "train" / f"{image_id:012d}.jpg"))[..., ::-1]
        assert np.abs(stored.astype(int) - scene.image).mean() < 6  # JPEG


@pytest.mark.parametrize("seed", range(4))
def test_masks_cover_the_pixels_that_changed(seed):
    labels = list(range(len(CLASSES)))
    bare = demo.compose(np.random.default_rng(seed), (192, 160), [])
    scene = demo.compose(np.random.default_rng(seed), (192, 160), labels)
    changed = (scene.image != bare.image).any(-1)
    mask = (scene.class_map > 0).astype(np.uint8)
    assert not changed[cv2.dilate(mask, np.ones((3, 3))) == 0].any()
    assert changed[mask > 0].mean() > 0.98


def test_objects_stay_in_sight():
    rng = np.random.default_rng(0)
    scene = demo.compose(rng, (64, 64), [CLASSES.index("flower")] * 12, scales=(0.5, 0.5))
    whole = max(instance.mask.sum() for instance in scene.instances)
    assert 1 < len(scene.instances) < 12  # no room for more
    assert all(instance.mask.sum() >= 0.65 * whole for instance in scene.instances)


def test_the_coins_of_a_crowd_lie_around_its_middle():
    """Each within a sixth of the image's side, in either direction; a coin is about an eighth of the side."""
    for seed in range(4):
        scene = demo.compose(np.random.default_rng(seed), (96, 96), [], scales=(0.12, 0.12), crowd=10)
        (crowd,) = scene.instances
        assert crowd.iscrowd
        rows, columns = np.nonzero(crowd.mask)
        assert 24 < np.ptp(rows) < 50
        assert 24 < np.ptp(columns) < 50


def test_polygons_rasterise_to_the_mask_with_holes_and_islands():
    rng = np.random.default_rng(0)
    for _ in range(20):
        noise = cv2.GaussianBlur(rng.standard_normal((40, 53)), (0, 0), rng.uniform(0.5, 4))
        mask = noise > rng.uniform(-0.3, 0.8) * noise.std()
        rasterised = _rasterise(demo.mask_to_polygons(mask), mask.shape)
        intersection, union = (mask & rasterised).sum(), (mask | rasterised).sum()
        assert intersection >= 0.99 * union
    ring = np.zeros((20, 20), bool)
    ring[2:18, 3:15] = True
    ring[5:9, 6:12] = ring[12:15, 5:9] = False
    ring[6:8, 8:10] = True  # an island in a hole
    np.testing.assert_array_equal(_rasterise(demo.mask_to_polygons(ring), ring.shape), ring)
    assert len(demo.mask_to_polygons(ring)) == 2


@pytest.mark.parametrize("fill", [0.0, 0.5, 1.0])
def test_rle_is_what_pycocotools_reads(fill):
    mask = np.random.default_rng(0).random((7, 5)) < fill
    rle = demo.mask_to_rle(mask)
    assert sum(rle["counts"]) == mask.size
    np.testing.assert_array_equal(coco_mask.decode(coco_mask.frPyObjects(rle, *rle["size"])), mask)


def test_same_seed_same_bytes(root, tmp_path):
    again = demo.make_demo(tmp_path / "again", num_images=SMALL, progress=False)
    assert _files(again) == _files(root)
    fewer = next(demo.make_scenes("val", 1)).image
    np.testing.assert_array_equal(fewer, next(demo.make_scenes("val", 5)).image)
    assert fewer.shape != (other := next(demo.make_scenes("val", 1, seed=1)).image).shape or (fewer != other).any()


def test_splits_share_no_coin(monkeypatch):
    # Coins that can be told apart: the i-th has grey value 8 (i + 1), all else is a black square.
    square = np.dstack([np.zeros((20, 20, 3)), np.ones((20, 20))]).astype(np.float32)
    objects = {name: [square] for name in CLASSES}
    objects["coin"] = [square + np.float32((i + 1) * 8 / 255) * (np.arange(4) < 3) for i in range(23)]
    monkeypatch.setattr(demo, "load_objects", lambda: objects)
    monkeypatch.setattr(demo, "_pose", lambda rng, cutout, *_: cutout)
    seen = {split: set() for split in SMALL}
    for split, shades in seen.items():
        for scene in demo.make_scenes(split, 200, side=96):
            for instance in scene.instances:
                if CLASSES[instance.label] == "coin":
                    shades.add(np.bincount(scene.image[instance.mask][:, 0]).argmax() // 8 - 1)
    assert seen == {"train": set(range(17)), "val": set(range(17, 23))}


@pytest.mark.parametrize("unseen", [True, False])
def test_splits_share_no_background_where_they_must_not(monkeypatch, tmp_path, unseen):
    backgrounds = load_backgrounds()
    used, drawn = {}, []

    class Recorder(dict):
        def __getitem__(self, name):
            drawn.append(name)
            return super().__getitem__(name)

    monkeypatch.setattr(demo, "load_backgrounds", lambda: Recorder(backgrounds))
    for split in SMALL:
        drawn.clear()
        list(demo.make_scenes(split, 60, side=48, unseen_backgrounds=unseen))
        used[split] = set(drawn)
    assert bool(used["train"] & used["val"]) is not unseen
    assert used["train"] | used["val"] == set(backgrounds)

    drawn.clear()  # class folders: training images come first
    demo.make_imagenet_layout(tmp_path, 8, side=32, unseen_backgrounds=unseen)
    first, second = set(drawn[: len(drawn) // 2]), set(drawn[len(drawn) // 2 :])
    assert bool(first & second) is not unseen


def test_data_with_unseen_backgrounds_are_other_data(tmp_path):
    few = {"train": 3, "val": 3}
    demo.make_demo(tmp_path / "demo", num_images=few, progress=False, unseen_backgrounds=True)
    with pytest.raises(FileExistsError, match="unseen_backgrounds"):
        demo.make_demo(tmp_path / "demo", num_images=few, progress=False)


def test_ade_layout_and_class_folders(root):
    for split, folder in {"train": "training", "val": "validation"}.items():
        maps = sorted((root / "ade" / "annotations" / folder).glob("*.png"))
        assert len(maps) == SMALL[split]
        for path, scene in zip(maps, demo.make_scenes(split, SMALL[split]), strict=True):
            np.testing.assert_array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), scene.class_map)
            assert (root / "ade" / "images" / folder / f"{path.stem}.jpg").is_file()
        assert sorted(path.name for path in (root / "cls" / split).iterdir()) == sorted(CLASSES)
        assert len(list((root / "cls" / split / "cat").glob("*.jpg"))) == 1


def test_made_once_and_only_over_its_own(root, tmp_path):
    before = (root / "demo.json").stat().st_mtime_ns
    demo.make_demo(root, num_images=SMALL)
    assert (root / "demo.json").stat().st_mtime_ns == before
    with pytest.raises(FileExistsError, match=r"'seed': 0.*'seed': 3.*Choose another folder"):
        demo.make_demo(root, seed=3, num_images=SMALL)
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(FileExistsError, match=r"holds other data.*another data_root; for your own data set type="):
        demo.make_demo(tmp_path)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_failed_build_leaves_nothing(tmp_path, monkeypatch):
    def fail(folder, *_):
        (folder / "half").write_text("")
        raise OSError("disk full")

    monkeypatch.setattr(demo, "_build", fail)
    with pytest.raises(OSError, match="disk full"):
        demo.make_demo(tmp_path / "demo")
    assert os.listdir(tmp_path) == [".demo.lock"]


def _in_processes(targets: list) -> list[int]:
    """Exit codes of functions run at once in forked processes (cv2's thread pool does not survive a fork, so without it)."""

    def run(target):
        cv2.setNumThreads(0)
        target()

    processes = [multiprocessing.get_context("fork").Process(target=run, args=[target]) for target in targets]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def test_a_killed_build_leaves_nothing_and_is_cleared_away(tmp_path, monkeypatch):
    root = tmp_path / "demo"

    def killed(folder, *_):
        (folder / "half").write_text("")
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(demo, "_build", killed)
        assert _in_processes([lambda: demo.make_demo(root)]) == [-signal.SIGKILL]
    assert not root.exists()
    assert len(list(tmp_path.glob(".demo-*"))) == 1
    (tmp_path / ".demo-file").write_text("cannot be removed as a folder")
    demo.make_demo(root, num_images={"train": 1, "val": 1}, progress=False)
    assert sorted(os.listdir(tmp_path)) == [".demo-file", ".demo.lock", "demo"]


@pytest.mark.parametrize("lock", [True, False])
def test_processes_at_once_make_one_good_data_set(tmp_path, monkeypatch, lock):
    """Also without file locks, where the rename alone decides."""
    numbers = {"train": 3, "val": 3}
    built = tmp_path / "built"
    build = demo._build

    def counted(*args):
        with built.open("a") as file:
            file.write("x")
        build(*args)

    def make():
        assert json.loads(
            (demo.make_demo(tmp_path / "demo", num_images=numbers, progress=False) / "demo.json").read_text()
        )

    monkeypatch.setattr(demo, "_build", counted)
    if not lock:
        monkeypatch.setitem(__import__("sys").modules, "fcntl", None)
    assert _in_processes([make] * 4) == [0] * 4
    if lock:
        assert built.read_text() == "x"
    monkeypatch.undo()
    alone = demo.make_demo(tmp_path / "alone", num_images=numbers, progress=False)
    assert _files(tmp_path / "demo") == _files(alone)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".demo-")]


def test_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "imgaug.data", None)
    load_objects.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'mmlisa\[demo\]'"):
        demo.make_demo(tmp_path / "demo", num_images=SMALL, progress=False)
    assert os.listdir(tmp_path) == [".demo.lock"]


def test_unknown_split():
    with pytest.raises(ValueError, match=r"'test'.*'train', 'val'"):
        next(demo.make_scenes("test", 1))
