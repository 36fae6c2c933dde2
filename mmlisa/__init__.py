"""Efficient-attention backbones (LiSA, FLatten, iViT, Castling-ViT, MILA, H-ViT3, PolaFormer) for OpenMMLab and timm."""

from importlib.util import find_spec
from pathlib import Path

from mmlisa import mmcv_ops
from mmlisa.lazy import names_at_first_use

__version__ = "0.1.0"

mmcv_ops.activate()

__all__, __getattr__, __dir__ = names_at_first_use(
    __name__,
    {
        "models.timm": "create_model list_models",
        "models.feature_maps": "channels strides",
        "models.swap": "swap",
        "inference.load": "load",
        "inference.faster": "optimize_for_cpu",
        "runtime": "runtime",
    },
)
__all__ += ["__version__", "config_path"]


def config_path(name: str) -> str:
    """Absolute path of a config that ships with mmlisa, in any folder of ``configs/``; the name may lack ``.py``.

    ``mmdet::``, ``mmseg::`` and ``mmpretrain::`` before it name a config of these libraries. MMEngine evaluates ``_base_`` before
    any import, so a project elsewhere writes ``_base_ = __import__("mmlisa").config_path("mask_rcnn_hylisanet_s_1x_coco.py")``.

    Raises:
        FileNotFoundError: no config has this name; the message names the closest ones.
    """
    from difflib import get_close_matches

    library, separator, file = name.rpartition("::")
    library = library or "mmlisa"
    spec = find_spec(library) if separator else __spec__
    if spec is None:
        raise FileNotFoundError(f"'{name}': {library} is not installed")
    package = Path(spec.origin).resolve().parent
    installed = package / ".mim" / "configs"
    root = installed if installed.is_dir() else package.parent / "configs"
    file = file if file.endswith(".py") else f"{file}.py"
    if (root / file).is_file():
        return str(root / file)
    shipped = {path.name: path for path in root.rglob("*.py") if "_base_" not in path.parts}
    if file in shipped:
        return str(shipped[file])
    near = get_close_matches(Path(file).name, shipped, n=3, cutoff=0.4)
    hint = f"; the closest are {', '.join(near)}" if near else ""
    raise FileNotFoundError(f"'{name}' does not exist, and {library} ships no config of this name{hint}")
