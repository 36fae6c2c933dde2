"""One call for every kind of trained model; without OpenMMLab, it opens exported files."""

from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from mmlisa import runtime
from mmlisa.errors import UserError

if TYPE_CHECKING:
    from mmlisa.inference.predictor import Predictor

_LOCK = Lock()  # MMEngine's default scope is one for all threads
# model.onnx, model.pth, model.json and *.jpg; tools/demo_model.py makes them
DEMO = Path(__file__).resolve().parent / "demo"
DEMO_CONFIG = "mask_rcnn_hylisanet_shipped_demo.py"


def load(
    path: str | Path,
    config: str | Path | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    faster: bool = True,
) -> "Predictor | runtime.Model":
    """Open a trained model for prediction: ``mmlisa.load("best.pth", "config.py").predict("street.jpg")``.

    The default scope of MMEngine's registries stays as it was.

    Args:
        path: a checkpoint, an exported ``.onnx`` file, or ``'demo'`` for the trained model that ships with mmlisa.
        config: config of the checkpoint, a Python file that is executed. The config may also come first.
        device: where a checkpoint runs; None for a GPU if there is one.
        dtype: half precision of a checkpoint's backbone and neck, ``'bfloat16'`` or ``'float16'``.
        faster: on a CPU, replace modules of a checkpoint's model by faster ones; False where a tool looks for PyTorch's own, such
            as ``quantize_dynamic`` for ``nn.Linear``.

    Raises:
        FileNotFoundError, UserError: a file that is missing, damaged or of another model; a checkpoint without ``config``; an
            exported file with ``dtype``, or without onnxruntime.
    """
    if str(path).endswith(".py") or str(config).endswith((".pth", ".onnx")):
        path, config = config, path
    if path is None:
        raise UserError(f"checkpoint is missing for config {str(config)!r}: pass load(checkpoint, config)")
    if path == "demo":
        path = DEMO / "model.onnx"
        if dtype or (find_spec("mmdet") and not find_spec("onnxruntime")):
            path, config = DEMO / "model.pth", DEMO_CONFIG
    if Path(path).suffix == ".onnx":
        if dtype:
            raise UserError(f"dtype is '{dtype}', but '{path}' runs as it was written; leave dtype out")
        return runtime.load(path)
    if config is None:
        beside = [str(file) for file in sorted(Path(path).absolute().parent.glob("*.py"))]
        raise UserError(
            f"config is missing for checkpoint {str(path)!r}: pass load(path, config=…), a name or file such as "
            f"{', '.join(beside) or 'the config it was trained with'}"
        )
    from mmengine.registry import DefaultScope

    from mmlisa.inference.predictor import Predictor  # needs OpenMMLab
    from mmlisa.training.config import load_config

    cfg = load_config(str(config))
    with _LOCK, DefaultScope.overwrite_default_scope(cfg.get("default_scope", "mmengine")):
        return Predictor(cfg, str(path), device=device, dtype=dtype, faster=faster)
