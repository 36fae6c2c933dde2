"""The report of a training: results per class, confusion matrix, and the images with the largest errors."""

import json
from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import cv2
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from mmengine.config import Config

from mmlisa.checkpoints.writing import writing_whole
from mmlisa.classes import Classes
from mmlisa.visualization.curves import draw_curves, read_curves
from mmlisa.visualization.overlays import draw_prediction

from .evaluation import SCORE, evaluate_labels, evaluate_maps, evaluate_objects

_NUM_WORST = 12


def write_report(folder: Path, commands: Mapping[str, str]) -> str:
    """Write ``report.html``, with its pictures inside, from the results of a test.

    Args:
        folder: of the run, with ``config.py``, ``data/``, the logs in ``train/`` and the predictions in ``test/``.
        commands: what to do next, by its description.

    Returns:
        The main result, as a sentence.

    Raises:
        OSError: predictions are missing, or the report cannot be written.
    """
    facts = json.loads((folder / "data" / "data.json").read_text())
    settings = Config.fromfile(folder / "config.py").to_dict()
    task, classes, root = facts["task"], list(settings["classes"]), Path(settings["data_root"])
    split, chosen = ("test", "") if facts["test"] else ("val", ", on which the checkpoint was chosen")
    unit_of_step = "tiles of" if (folder / "plain.py").exists() else "images, longer side"
    summary = [
        f"{facts['format']}: {len(facts['train'])} images to train on; results are those of the {len(facts[split])} images of "
        f"{split}{chosen}",
        f"{settings['steps']} steps of {settings['batch']} {unit_of_step} {settings['side']} pixels",
        *facts["summary"],
    ]
    evaluate, unit = {
        "detection": (evaluate_objects, f"Objects; detections from a score of {SCORE} on"),
        "segmentation": (evaluate_maps, "Pixels"),
        "classification": (evaluate_labels, "Images"),
    }[task]
    result = evaluate(folder, root, split, classes)
    curves, worst, comparison = BytesIO(), [], folder / "comparison.json"
    draw_curves(read_curves(folder / "train"), curves)
    meta = Classes({"classes": tuple(classes)})
    for path, _, caption in sorted(result.images, key=lambda image: -image[1])[:_NUM_WORST]:
        picture = cv2.imread(str(root / path))[..., ::-1]
        drawn = draw_prediction(picture, result.sample(path), meta, score_threshold=SCORE, with_truth=True)
        _, content = cv2.imencode(".jpg", drawn[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
        worst.append((content.tobytes(), f"{path}: {caption}"))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["base64"] = lambda content: b64encode(content).decode()
    text = environment.get_template("report.html.jinja").render(
        title=f"{folder.name}: {task}",
        result=result,
        comparison=json.loads(comparison.read_text()) if comparison.exists() else None,
        exported=json.loads((folder / "export.json").read_text()),
        names=[*classes, "nothing"][: len(result.confusion)],
        summary=summary,
        curves=curves.getvalue(),
        unit=unit,
        worst=worst,
        beside=task != "classification",
        commands=commands,
    )
    with writing_whole(folder / "report.html") as file:
        file.write(text.encode())
    return result.score
