"""The report of a training: results per class, confusion matrix, and the images with the largest errors."""

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import mmcv
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from mmengine.config import Config

from mmlisa import __version__
from mmlisa.checkpoints import write_file
from mmlisa.classes import Classes
from mmlisa.training.config import build_model
from mmlisa.visualization.curves import draw_curves, read_curves
from mmlisa.visualization.overlays import draw_prediction

from .evaluation import Evaluation, evaluate_labels, evaluate_maps, evaluate_objects

_PICTURES, _PER_IMAGE = 12, 3  # pictures of errors, and most of one image
_SIDE = 400  # pixels of each of two pictures beside each other


def write_report(folder: Path, commands: Mapping[str, str]) -> str:
    """Write ``report.html``, with its pictures inside, from the results of a test, and return the main result, a sentence.

    ``folder`` has ``config.py``, ``data/``, the logs in ``train/`` and the predictions in ``test/``; ``commands`` are what to do
    next, by its description.
    """
    facts = json.loads((folder / "data" / "data.json").read_text())
    cfg = Config.fromfile(folder / "config.py")
    settings = cfg.to_dict()
    task, classes, root = facts["task"], list(settings["classes"]), Path(settings["data_root"])
    split, chosen = ("test", "") if facts["test"] else ("val", "; the checkpoint was chosen on them")
    unit_of_step = "tiles of" if (folder / "plain.py").exists() else "images, longer side"
    length = f"at most {settings['steps']} steps of {settings['batch']} {unit_of_step} {settings['side']} pixels"
    parameters = sum(parameter.numel() for parameter in build_model(cfg).parameters())
    curves, comparison = BytesIO(), folder / "comparison.json"
    draw_curves(read_curves(folder / "train"), curves)
    evaluate = {"detection": evaluate_objects, "segmentation": evaluate_maps, "classification": evaluate_labels}[task]
    result = evaluate(folder, root, split, classes)
    option = f" --score-thr {result.threshold:.2f}" if result.threshold else ""
    commands = {purpose: line + option * (" infer " in line) for purpose, line in commands.items()}
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
        summary=[
            f"tested on {split}, number of images: {len(facts[split])}{chosen}",
            f"{model_name(settings['model'])} with {parameters / 1e6:.2f} million parameters",
            f"{length}; trained for {duration(folder)}",
            f"mmlisa {__version__}, {date.today()}",
        ],
        facts=facts,
        curves=curves.getvalue(),
        worst=draw_errors(result, root, classes),
        beside=task != "classification",
        commands=commands,
        exported_line=commands.get("the same with the exported file"),
    )
    write_file(folder / "report.html", text)
    return result.score


def model_name(model: Mapping[str, Any]) -> str:
    """Return the detector, segmentor or classifier of a config and its backbone, in a few words."""
    model = model.get("detector", model)
    arch = model["backbone"].get("arch", "")
    return f"{model['type']} on {model['backbone']['type']}{f' ({arch})' if isinstance(arch, str) and arch else ''}"


def duration(folder: Path) -> str:
    """Return the time of a training, from the times of its logs: a folder's name is the start, its last change the end."""
    logs = folder.glob("train/*/vis_data/scalars.json")
    starts = ((log, datetime.strptime(log.parts[-3], "%Y%m%d_%H%M%S").timestamp()) for log in logs)
    return str(timedelta(seconds=round(sum(max(0, log.stat().st_mtime - start) for log, start in starts))))


def draw_errors(result: Evaluation, root: Path, classes: list[str]) -> list[tuple[bytes, str]]:
    """Return JPEG pictures of the largest errors, annotation beside prediction, and a caption of each."""
    drawn, options = [], dict(score_threshold=0, side=_SIDE)
    wrong = [image for image in result.images if image[1] > 0]
    for path, _, caption, windows in sorted(wrong, key=lambda image: -image[1])[:_PICTURES]:
        picture, shown = mmcv.imread(root / path, channel_order="rgb"), []
        for window in windows:
            x, y, w, h = window or (0, 0, *picture.shape[1::-1])
            if len(shown) == _PER_IMAGE or any(abs(x - left) < w / 2 and abs(y - top) < h / 2 for left, top in shown):
                continue
            shown.append((x, y))
            cut, sample = picture[y : y + h, x : x + w], result.sample(path, window)
            drawing = draw_prediction(cut, sample, Classes({"classes": classes}), **options)[..., ::-1]
            _, content = cv2.imencode(".jpg", drawing, [cv2.IMWRITE_JPEG_QUALITY, 90])
            where = f", {w}x{h} pixels at {x}, {y}" if (w, h) != picture.shape[1::-1] else ""
            drawn.append((content.tobytes(), f"{path}{where}: {caption}"))
    return drawn[:_PICTURES]
