"""Pascal VOC: an XML file per image; ``ImageSets/Main/*.txt`` are its splits. Objects marked difficult become crowds."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from ..folder import Dataset, Evidence, Folder, listed_splits
from .objects import Part, coco_object, one_image, read_objects, size_of

NAME, TASKS = "Pascal VOC", ("detection",)
LAYOUT = "Annotations/*.xml, JPEGImages/*.jpg               Pascal VOC; also each *.xml beside its image"


def recognises(folder: Folder) -> Evidence | None:
    """Return the annotation files."""
    return folder.documents_with("annotation")


def read(folder: Folder) -> Dataset:
    """Read the boxes."""
    return read_objects(folder, NAME, _parts(folder))


def _parts(folder: Folder) -> Iterator[Part]:
    files = recognises(folder).files
    listed = listed_splits(folder, "Main")
    names = sorted({entry.findtext("name", "") for root in files.values() for entry in root.iter("object")})
    for name, root in files.items():
        stem, objects = PurePosixPath(name).stem, {}
        for number, entry in enumerate(root.iter("object"), 1):
            corners = [float(entry.findtext(f"bndbox/{side}", "nan")) for side in ("xmin", "ymin", "xmax", "ymax")]
            # The format counts pixels from 1, and includes the last.
            corners = [max(0, corners[0] - 1), max(0, corners[1] - 1), *corners[2:]]
            is_crowd = entry.findtext("difficult") == "1"
            objects[number] = coco_object(entry.findtext("name", ""), corners, crowd=is_crowd)
        image, stated = root.findtext("filename", ""), [root.findtext(f"size/{x}") or 0 for x in ("width", "height")]
        size = size_of(folder, name, image, tuple(map(int, stated)))
        content = one_image(image, size, objects, dict(zip(names, names, strict=True)))
        yield Part(name, listed.get(stem, ""), content)
