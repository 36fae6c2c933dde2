"""Open a page in the browser that shows predictions of trained models on pictures: ``mmlisa demo-page``.

A click on a pixel draws the attention kernels of each layer around it.
"""

import argparse
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mmlisa import cli
from mmlisa.errors import UserError

NONE = "none"


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "demo-page", formatter_class=argparse.RawDescriptionHelpFormatter)
    add = arguments.add_argument
    add("--work-dirs", type=Path, default="work_dirs", help="folder of the trainings (default: %(default)s)")
    add("--host", default="127.0.0.1", help="0.0.0.0 serves other machines, too (default: %(default)s)")
    add("--port", type=cli.positive_int, help="port of the page (default: the first free one from 7860)")
    add("--no-browser", action="store_true", help="print the address without opening a browser")
    return arguments


def main(args: argparse.Namespace) -> None:
    from mmlisa.checkpoints import use_safe_loader

    use_safe_loader()
    page = build_page(args.work_dirs)
    options = dict(inbrowser=not args.no_browser, footer_links=[], quiet=True, prevent_thread_lock=True)
    _, address, _ = page.launch(server_name=args.host, server_port=args.port, **options)
    print(f"{address} (Ctrl-C ends it)", flush=True)
    page.block_thread()


def find_models(root: Path) -> dict[str, tuple[Path, Path]]:
    """Return checkpoint and config of the trainings under ``root`` by the checkpoint's path, the newest first.

    A training writes its config into the folder of its checkpoints.
    """
    files = sorted(root.glob("**/*.pth"), key=lambda path: -path.stat().st_mtime)
    configs = {file: list(file.parent.glob("*.py")) for file in files}
    return {str(file.relative_to(root)): (file, *config) for file, config in configs.items() if len(config) == 1}


@lru_cache(maxsize=4)
def load_predictor(checkpoint: Path, config: Path, changed: float) -> Any:
    """Load a model; it is kept until its file changes.

    Raises:
        FileNotFoundError, UserError: see :func:`mmlisa.load`; also for a model of videos.
    """
    from mmlisa.inference.load import load

    model = load(checkpoint, config)
    if model.takes_clips:
        raise UserError(f"'{checkpoint}' classifies videos; use `mmlisa infer` for videos")
    return model


def predict(predictor: Any, picture: Any, score_threshold: float) -> tuple[Any, str]:
    """Predict on a picture ``[H, W, 3]`` (RGB), and return the drawing and a line about it."""
    from mmengine.structures import BaseDataElement

    from mmlisa.classes import Classes
    from mmlisa.inference.pictures import summarise, to_data
    from mmlisa.inference.predictor import fill_sample
    from mmlisa.visualization.overlays import draw_prediction

    prediction, classes = predictor.predict(picture, score_threshold), Classes(predictor.metainfo)
    drawing = draw_prediction(picture, fill_sample(BaseDataElement(), prediction), classes, score_threshold=0.0)
    return drawing, summarise(to_data(prediction, classes))


def draw_kernels(predictor: Any, picture: Any, query: tuple[float, float]) -> list[tuple[Any, str]]:
    """Draw the kernels around a relative position (y, x), for each layer the mean of its heads, with captions.

    Raises:
        UserError: the backbone has no attention.
    """
    import torch
    import torch.nn.functional as F

    from mmlisa.visualization.kernels import attention_kernels, find_operators, network_input, overlay_kernel

    model = predictor.model
    layers = range(len(find_operators(model.backbone)))
    if not layers:
        raise UserError(f"{type(model.backbone).__name__} has no attention")
    # img_shape is also that of paddings and crops.
    wider, higher = predictor.read(picture)["data_samples"][0].get("scale_factor", (1.0, 1.0))
    size = round(picture.shape[0] * higher), round(picture.shape[1] * wider)
    tensor = torch.from_numpy(picture.copy()).permute(2, 0, 1).float()
    resized = F.interpolate(tensor[None], size=size, mode="bilinear", antialias=True)[0]
    kernels = attention_kernels(model.backbone, network_input(resized, model.data_preprocessor), layers, [query])
    return [(overlay_kernel(tensor, kernel[0].mean(dim=0), query), name) for name, kernel in kernels.items()]


def build_page(root: Path) -> Any:
    """Build the page as Gradio blocks, with the checkpoints of the trainings under ``root``."""
    import gradio as gr

    models = find_models(root)

    def for_each(labels: Sequence[str], show: Any, empty: Any) -> list[Any]:
        chosen = [models.get(label) for label in labels]
        try:
            return [show(load_predictor(*each, each[0].stat().st_mtime)) if each else empty for each in chosen]
        except (ValueError, OSError) as error:
            raise gr.Error(str(error)) from error

    def on_run(picture: Any, first: str, second: str, threshold: float) -> list[Any]:
        if picture is None:
            raise gr.Error("Drop a picture first.")
        pairs = for_each((first, second), lambda model: predict(model, picture, threshold), (None, ""))
        return [value for pair in pairs for value in pair]

    def on_click(picture: Any, first: str, second: str, event: gr.SelectData) -> list[Any]:
        height, width = picture.shape[:2]
        query = event.index[1] / height, event.index[0] / width
        galleries = for_each((first, second), lambda model: draw_kernels(model, picture, query), [])
        text = f"Attention kernels of each layer for pixel {tuple(event.index)}: red adds, blue subtracts."
        return [text, *galleries]

    with gr.Blocks(title="mmlisa", analytics_enabled=False) as page:
        gr.Markdown("# mmlisa\nPredictions of one or two models. Click a pixel to see what each layer looks at.")
        with gr.Row():
            picture = gr.Image(label="Picture: drop one, then click a pixel", elem_id="picture", height=420, scale=2)
            with gr.Column():
                first = gr.Dropdown([*models, NONE], label="Model", elem_id="first")
                second = gr.Dropdown([*models, NONE], value=NONE, label="Beside it", elem_id="second")
                threshold = gr.Slider(0, 1, 0.3, step=0.05, label="Objects below this score are left out")
                run = gr.Button("Run", variant="primary", elem_id="run")
        predictions, galleries = [], []
        pixel = gr.Markdown(elem_id="pixel")
        with gr.Row():
            for side in ("first", "second"):
                with gr.Column():
                    drawing = gr.Image(interactive=False, show_label=False, format="png", elem_id=f"drawing-{side}")
                    predictions += [drawing, gr.Markdown(elem_id=f"summary-{side}")]
                    galleries.append(gr.Gallery(show_label=False, columns=2, elem_id=f"kernels-{side}"))
        run.click(on_run, [picture, first, second, threshold], predictions)
        picture.select(on_click, [picture, first, second], [pixel, *galleries])
    return page
