"""Efficient-attention backbones (LiSA, FLatten, iViT, Castling-ViT) for OpenMMLab detection and segmentation."""

from importlib import import_module
from typing import Any

from mmlisa import mmcv_ops

__version__ = "0.1.0"

mmcv_ops.activate()

# Public names and the modules that hold them, imported at first use.
_LAZY = {
    "create_model": "mmlisa.models.timm",
    "list_models": "mmlisa.models.timm",
    "channels": "mmlisa.models.feature_maps",
    "strides": "mmlisa.models.feature_maps",
    "layers": "mmlisa.models.layers",
    "load": "mmlisa.deploy.inference",
    "optimize_for_cpu": "mmlisa.deploy.cpu",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]


def config_path(name: str) -> str:
    """Absolute path of a config that ships with mmlisa, from a clone and from an installed wheel alike.

    The name is enough, in whichever folder of ``configs/`` the file is.

    Meant for config inheritance: MMEngine evaluates ``_base_`` as an expression before any import, so a project elsewhere writes
    ``_base_ = __import__("mmlisa").config_path("mask_rcnn_hylisanet_s_1x_coco.py")``.

    Raises:
        FileNotFoundError: no config has this name; the message names the closest ones.
    """
    from difflib import get_close_matches  # here, because programs of the environment may import mmlisa at their start
    from pathlib import Path

    package = Path(__file__).resolve().parent
    roots = [package / ".mim" / "configs", package.parent / "configs"]
    folders = [root / folder for root in roots for folder in ("", "imagenet", "ablations", "video")]
    for folder in folders:
        if (folder / name).is_file():
            return str(folder / name)
    shipped = {path.name for folder in folders for path in folder.glob("*.py")}
    near = get_close_matches(Path(name).name, shipped, n=3, cutoff=0.4)
    hint = f"; the closest are {', '.join(near)}" if near else ""
    raise FileNotFoundError(f"mmlisa ships no config named '{name}'{hint}")
