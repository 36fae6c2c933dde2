"""A page in the browser with predictions of one or two models on a picture and attention kernels around a pixel."""

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.structures import BaseDataElement

from figures.kernels import attention_kernels, find_operators, network_input, overlay_kernel
from mmlisa import cli
from mmlisa.deploy import runtime
from mmlisa.deploy.inference import (
    IMAGE_SUFFIXES,
    Predictor,
    describe,
    fill_sample,
    load,
    summarise,
)
from mmlisa.memory import peak_extra_bytes
from mmlisa.visualization.overlays import Classes, draw_prediction

# Demos that the page can train: their labels on the page, and their configs.
DEMOS = {
    "classifier, a few minutes": "classifier_hylisanet_demo.py",
    "detector with masks": "mask_rcnn_hylisanet_demo.py",
    "segmentor": "semantic_fpn_hylisanet_demo.py",
}
NONE = "none"
_EXAMPLES = 8


class Run(NamedTuple):
    """A model's prediction on a picture.

    Attributes:
        drawing: the picture with the prediction, ``[h, w, 3]``, RGB.
        summary: a line with the objects, segments or class.
        seconds: time of the first prediction.
        peak_bytes: largest memory that PyTorch held during a prediction, without the weights.
    """

    drawing: np.ndarray
    summary: str
    seconds: float
    peak_bytes: int

    def __str__(self) -> str:
        return f"**{self.summary}**  \n{1e3 * self.seconds:.0f} ms, peak memory {self.peak_bytes / 1e6:.0f} MB"


def find_models(root: Path) -> dict[str, Path]:
    """Return checkpoints and exported files of image models in the work dirs under ``root`` by their paths, the newest first."""
    # `mmlisa fit` trains in a folder of its work dir, which is by default under fit/.
    folders = ("*", "*/train", "fit/*", "fit/*/train")
    files = [path for folder in folders for kind in ("pth", "onnx") for path in root.glob(f"{folder}/*.{kind}")]
    known = [path for path in files if path.suffix == ".onnx" or any(path.parent.glob("*.py"))]
    return {path.relative_to(root).as_posix(): path for path in sorted(known, key=lambda path: -path.stat().st_mtime)}


@lru_cache(maxsize=4)
def load_predictor(file: Path, changed: float) -> Predictor | runtime.Model:
    """Load the model of a checkpoint or of an exported file; it is cached until the file changes.

    Raises:
        FileNotFoundError, ValueError: see :class:`Predictor`; also for a model of videos.
    """
    config = next(file.parent.glob("*.py"), None)  # the training wrote it there
    model = load(file, config)
    if getattr(model, "takes_clips", False):
        raise ValueError(f"{file} classifies videos; this page shows pictures. `mmlisa infer` takes videos")
    return model


def predict(predictor: Predictor | runtime.Model, picture: np.ndarray, score_threshold: float) -> Run:
    """Predict on a picture ``[H, W, 3]`` (RGB) and measure time and memory."""
    results = []

    def run() -> None:
        start = perf_counter()
        results.append((predictor.predict(picture, score_threshold), perf_counter() - start))

    peak = peak_extra_bytes(run, getattr(predictor, "device", "cpu"))
    found, seconds = results[0]  # the second run is profiled
    classes = Classes(getattr(predictor, "metainfo", {"classes": predictor.classes}))
    drawing = draw_prediction(picture, fill_sample(BaseDataElement(), found), classes, score_threshold=0.0)
    return Run(drawing, summarise(describe(found, classes)), seconds, peak)


def kernels(predictor: Predictor, picture: np.ndarray, query: tuple[float, float]) -> list[tuple[np.ndarray, str]]:
    """Draw the kernels around a relative position (y, x), for each layer the mean of its heads, with captions.

    Raises:
        ValueError: the backbone has no attention operator, or the model is an exported file.
    """
    if isinstance(predictor, runtime.Model):
        raise ValueError("an exported file shows no kernels: take the checkpoint that it was made of")
    model = predictor.model
    layers = range(len(find_operators(model.backbone)))
    if not layers:
        raise ValueError(f"{type(model.backbone).__name__} has no attention operator")
    # img_shape is also that of paddings and crops.
    wider, higher = predictor.read(picture)["data_samples"][0].get("scale_factor", (1.0, 1.0))
    size = round(picture.shape[0] * higher), round(picture.shape[1] * wider)
    tensor = torch.from_numpy(picture.copy()).permute(2, 0, 1).float()
    resized = F.interpolate(tensor[None], size=size, mode="bilinear", antialias=True)[0]
    found = attention_kernels(model.backbone, network_input(resized, model.data_preprocessor), layers, [query])
    return [
        (
            overlay_kernel(tensor, kernel[0].mean(dim=0), query),
            f"{name}, {'x'.join(map(str, kernel.shape[2:]))}",
        )
        for name, kernel in found.items()
    ]


def examples() -> list[str]:
    """Return example pictures: from the demo data if they exist, otherwise from scikit-image if it is installed."""
    demo = sorted(Path("data/demo/val").glob("*.jpg"))[:_EXAMPLES]
    if demo or not find_spec("skimage"):
        return [str(path) for path in demo]
    import skimage.data

    folder = Path(skimage.data.__file__).parent
    names = ("astronaut", "chelsea", "coffee", "rocket", "motorcycle_left")
    return [str(path) for name in names for path in folder.glob(f"{name}.*") if path.suffix in IMAGE_SUFFIXES]


def train_demo(name: str, root: Path) -> Iterator[str]:
    """Train a demo in another process and yield the last lines of its log; closing the iterator stops the training."""
    config = DEMOS[name]
    command = [
        sys.executable,
        *cli.RUN_MODULE,
        "mmlisa.cli",
        "train",
        config,
        "--work-dir",
        str(root / Path(config).stem),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: deque[str] = deque(maxlen=12)
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            yield "\n".join(lines)
    finally:
        if process.poll() is None:
            process.terminate()
        code = process.wait()
    if code:
        yield "\n".join([*lines, f"The training failed (exit status {code})."])


def build_page(root: Path) -> Any:
    """Build the page as Gradio blocks, with the checkpoints of the work dirs under ``root``.

    Raises:
        ImportError: Gradio is missing.
    """
    try:
        import gradio as gr
    except ImportError as error:
        raise ImportError("the demo page needs Gradio: pip install 'mmlisa[demo-page]'") from error

    def chosen(label: str) -> Predictor | None:
        file = find_models(root).get(label)
        return file and load_predictor(file, file.stat().st_mtime)

    def on_run(picture: np.ndarray | None, first: str, second: str, threshold: float) -> list[Any]:
        if picture is None:
            raise gr.Error("Drop a picture first, or take an example.")
        outputs: list[Any] = []
        for label in (first, second):
            with _told(gr):
                predictor = chosen(label)
                run = predict(predictor, picture, threshold) if predictor else None
            outputs += [run.drawing, str(run)] if run else [None, ""]
        return outputs

    def on_click(picture: np.ndarray, first: str, second: str, event: gr.SelectData) -> list[Any]:
        height, width = picture.shape[:2]
        query = event.index[1] / height, event.index[0] / width
        galleries = []
        for label in (first, second):
            with _told(gr):
                predictor = chosen(label)
                galleries.append(kernels(predictor, picture, query) if predictor else [])
        pixel = (
            f"Attention kernels of each layer, the mean of its heads, for pixel ({event.index[0]}, {event.index[1]}): "
        )
        return [pixel + "red adds, blue subtracts.", *galleries]

    def choices() -> list[Any]:
        labels = list(find_models(root))
        return [gr.Dropdown(choices=labels, value=labels[0] if labels else None), gr.Dropdown(choices=[NONE, *labels])]

    def on_train(name: str) -> Iterator[list[Any]]:
        for text in train_demo(name, root):
            yield [text, gr.skip(), gr.skip()]
        yield [gr.skip(), *choices()]

    labels = list(find_models(root))
    with gr.Blocks(title="mmlisa", analytics_enabled=False) as page:
        gr.Markdown(
            "# mmlisa\nPredictions of one or two models on a picture. Click a pixel to see what each layer looks at."
        )
        with gr.Row():
            with gr.Column(scale=2):
                picture = gr.Image(label="Picture: drop, take an example, click a pixel", elem_id="picture", height=420)
                gr.Examples([[path] for path in examples()], [picture], cache_examples=False, elem_id="examples")
            with gr.Column(scale=1):
                first = gr.Dropdown(labels, value=labels[0] if labels else None, label="Model", elem_id="first")
                second = gr.Dropdown([NONE, *labels], value=NONE, label="Beside it", elem_id="second")
                threshold = gr.Slider(0, 1, 0.3, step=0.05, label="Objects below this score are left out")
                run = gr.Button("Run", variant="primary", elem_id="run")
                with gr.Accordion("Train a demo", open=not labels):
                    demo = gr.Dropdown(
                        list(DEMOS), value=next(iter(DEMOS)), label="Demo, from scratch on the CPU or GPU"
                    )
                    train = gr.Button("Train", elem_id="train")
                    log = gr.Textbox(label="Log", lines=8, elem_id="log")
        with gr.Row():
            drawings, summaries = [], []
            for side in ("first", "second"):
                with gr.Column():
                    buttons = ["download", "fullscreen"]
                    image = gr.Image(
                        interactive=False, show_label=False, format="png", buttons=buttons, elem_id=f"drawing-{side}"
                    )
                    drawings.append(image)
                    summaries.append(gr.Markdown(elem_id=f"summary-{side}"))
        pixel = gr.Markdown(elem_id="pixel")
        with gr.Row():
            options = dict(show_label=False, columns=2, object_fit="contain", height="auto", buttons=["fullscreen"])
            galleries = [gr.Gallery(elem_id=f"kernels-{side}", **options) for side in ("first", "second")]
        predictions = [part for pair in zip(drawings, summaries, strict=True) for part in pair]
        run.click(on_run, [picture, first, second, threshold], predictions)
        picture.select(on_click, [picture, first, second], [pixel, *galleries])
        train.click(on_train, [demo], [log, first, second])
    return page


@contextmanager
def _told(gradio: Any) -> Iterator[None]:
    """Show errors that a user can cause on the page."""
    try:
        yield
    except cli.MISTAKES as error:
        raise gradio.Error(str(error)) from error
