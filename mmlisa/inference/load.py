"""One call for every kind of trained model; without OpenMMLab, it opens exported files."""

from pathlib import Path
from typing import TYPE_CHECKING

from mmlisa import runtime

if TYPE_CHECKING:
    from mmlisa.inference.predictor import Predictor

DEMO = (
    Path(__file__).resolve().parent / "demo"
)  # model.onnx, model.pth, model.json and *.jpg; tools/demo_model.py makes them


def load(
    path: str | Path, config: str | Path | None = None, *, device: str | None = None
) -> "Predictor | runtime.Model":
    """Open a trained model for prediction: ``mmlisa.load("best.pth", "config.py").predict("street.jpg")``.

    Args:
        path: a checkpoint, an exported ``.onnx`` file, or ``'demo'`` for the trained model that ships with mmlisa.
        config: config of the checkpoint, a Python file that is executed.
        device: where a checkpoint runs; None for a GPU if there is one.

    Raises:
        FileNotFoundError, ValueError: a file that is missing, damaged or of another model; a checkpoint without ``config``.
    """
    if path == "demo":
        return runtime.load(DEMO / "model.onnx")
    if Path(path).suffix == ".onnx":
        return runtime.load(path)
    if config is None:
        beside = [str(file) for file in sorted(Path(path).absolute().parent.glob("*.py"))]
        raise ValueError(
            f"config is missing for checkpoint {str(path)!r}: pass load(path, config=…), a name or file such as "
            f"{', '.join(beside) or 'the config it was trained with'}"
        )
    from mmlisa.inference.predictor import Predictor  # needs OpenMMLab
    from mmlisa.training.config import load_config

    return Predictor(load_config(str(config)), str(path), device=device)
