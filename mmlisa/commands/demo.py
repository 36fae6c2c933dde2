"""Find objects in sample images with the trained model that ships with mmlisa: ``mmlisa demo``."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmlisa import cli


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "demo")
    add = arguments.add_argument
    add("images", type=cli.existing_path, nargs="*", metavar="IMAGE", help="default: two that ship")
    add("--out-dir", type=Path, default="work_dirs/demo", help="folder of the pictures (default: %(default)s)")
    return arguments


def _draw(picture: Any, prediction: Any, classes: Sequence[str]) -> Any:
    """Return a picture ``[H, W, 3]`` (RGB, uint8) with masks, boxes and labels, three times as large."""
    import cv2
    import numpy as np

    drawing = cv2.resize(picture, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    objects = prediction.boxes, prediction.scores, prediction.labels, prediction.masks
    for box, score, label, mask in zip(*objects, strict=True):
        hue = np.uint8([[[int(label) * 180 // len(classes), 200, 255]]])
        colour = cv2.cvtColor(hue, cv2.COLOR_HSV2RGB)[0, 0]
        inside = cv2.resize(mask.astype(np.uint8), drawing.shape[1::-1]) > 0
        drawing[inside] = drawing[inside] * 0.6 + colour * 0.4
        x1, y1, x2, y2 = (box * 3).astype(int).tolist()
        cv2.rectangle(drawing, (x1, y1), (x2, y2), colour.tolist(), 2)
        text, place = f"{classes[label]} {score:.2f}", (x1 + 4, max(y1, 0) + 18)
        for ink, width in ((0, 3), (255, 1)):  # white with a black rim
            cv2.putText(drawing, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.55, (ink,) * 3, width, cv2.LINE_AA)
    return drawing


def main(args: argparse.Namespace) -> None:
    import cv2

    from mmlisa import runtime
    from mmlisa.inference.load import DEMO, load

    model = load("demo")
    about = json.loads((DEMO / "model.json").read_text())
    print(f"{about['model']}: box AP50 {about['box_AP50']:.3f}, mask AP50 {about['mask_AP50']:.3f} on the demo data")
    args.out_dir.mkdir(parents=True, exist_ok=True)
    for image in args.images or sorted(DEMO.glob("*.jpg")):
        picture = runtime.read_image(image)
        prediction = model.predict(picture)
        target = args.out_dir / f"{Path(image).stem}.png"
        cv2.imwrite(str(target), _draw(picture, prediction, model.classes)[..., ::-1])
        counts = Counter(model.classes[label] for label in prediction.labels)
        print(f"{target}: {', '.join(f'{n} {name}' for name, n in counts.most_common()) or 'nothing found'}")
    print(
        "\nNext:\n"
        "  mmlisa demo YOUR_IMAGE.jpg                       it knows " + ", ".join(model.classes) + "\n"
        "  mmlisa train mask_rcnn_hylisanet_demo.py         train such a model in minutes (needs OpenMMLab)\n"
        "  mmlisa fit FOLDER                                train on your images and annotations"
    )
