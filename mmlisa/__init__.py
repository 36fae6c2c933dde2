"""Efficient-attention backbones (LiSA, FLatten, iViT, Castling-ViT, MILA, H-ViT3, PolaFormer) for OpenMMLab and timm."""

from importlib import import_module
from pathlib import Path
from typing import Any

from mmlisa import mmcv_ops

__version__ = "0.1.0"

mmcv_ops.activate()

# Public names and the modules that hold them (or that they are), imported at first use.
_LAZY = {
    "create_model": "mmlisa.models.timm",
    "list_models": "mmlisa.models.timm",
    "channels": "mmlisa.models.feature_maps",
    "strides": "mmlisa.models.feature_maps",
    "layers": "mmlisa.models.layers",
    "load": "mmlisa.inference.load",
    "optimize_for_cpu": "mmlisa.inference.cpu",
    "runtime": "mmlisa.runtime",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_LAZY[name])
    return getattr(module, name, module)


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
    from difflib import get_close_matches

    package = Path(__file__).resolve().parent
    installed = package / ".mim" / "configs"
    root = installed if installed.is_dir() else package.parent / "configs"
    if (root / name).is_file():
        return str(root / name)
    shipped = {path.name: path for path in root.rglob("*.py") if "_base_" not in path.parts}
    if name in shipped:
        return str(shipped[name])
    near = get_close_matches(Path(name).name, shipped, n=3, cutoff=0.4)
    hint = f"; the closest are {', '.join(near)}" if near else ""
    raise FileNotFoundError(f"mmlisa ships no config named '{name}'{hint}")
