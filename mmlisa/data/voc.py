"""Pascal VOC: an XML file per image; ``ImageSets/Main/*.txt`` are its splits. Objects marked difficult become crowds.

Roboflow and supervision add ``<polygon><x1>…</x1><y1>…</y1><x2>…`` to an object.
"""

import re
from typing import Any

from .dataset import Dataset, Objects
from .folder import Evidence, Folder

NAME = "Pascal VOC"
LAYOUT = "Annotations/*.xml, JPEGImages/*.jpg               Pascal VOC; also each *.xml beside its image"
_SIDES = ("xmin", "ymin", "xmax", "ymax")


def recognises(folder: Folder) -> Evidence | None:
    files = folder.documents_with("annotation")
    why = f"{len(files)} XML files such as {min(files, default='')}"
    return Evidence(why, tasks=("detection",), content=files) if files else None


def read(folder: Folder, files: dict[str, Any], task: str) -> Dataset:
    objects = Objects(folder)
    for file, root in files.items():
        stated = root.findtext("filename", "")
        size = root.findtext("size/width"), root.findtext("size/height")
        sample = objects.add_image(file, folder.find_one(stated, file), size, stated=stated)
        for number, entry in enumerate(root.iter("object"), 1):
            where = f"{folder.root / file}, object {number}"
            try:
                left, top, right, bottom = (float(entry.findtext(f"bndbox/{side}", "")) for side in _SIDES)
                points = [each.text for each in entry.findall("polygon/*") if re.fullmatch(r"[xy]\d+", each.tag)]
                outline = [max(0, float(value) - 1) for value in points]
            except (TypeError, ValueError):
                tags = ", ".join(part.tag for part in entry)
                objects.bad.append((where, f"it has no bndbox of four numbers, but {tags}"))
                continue
            # The format counts pixels from 1, and includes the last.
            corners = (max(0, left - 1), max(0, top - 1), right, bottom)
            is_difficult = entry.findtext("difficult") == "1"
            objects.add(sample, where, entry.findtext("name", ""), corners, [outline] * bool(outline), is_difficult)
    return objects.finish()
