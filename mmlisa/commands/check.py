"""Report the versions that are installed, and what cannot be imported: ``mmlisa check``.

The exit status is 1 if a package that mmlisa needs cannot be imported.
"""

import argparse
import sys
from importlib import import_module, metadata

from mmlisa import __version__, cli, mmcv_ops

NEEDED, EXTENDED = ("torch", "torchvision", "timm", "mmengine", "mmcv"), ("mmdet", "mmseg", "mmpretrain")


def parser() -> argparse.ArgumentParser:
    return cli.build_parser(__doc__, "check")


def main(args: argparse.Namespace) -> None:
    lines, failed = {"mmlisa": __version__}, False
    installed = {each.metadata["Name"] for each in metadata.distributions()}
    engines = {"onedl-mmengine": "onedl", "mmengine": "openmmlab"}
    families = [family for engine, family in engines.items() if engine in installed]
    lines["OpenMMLab"] = " and ".join(families) or "not installed; install mmlisa[onedl] or mmlisa[openmmlab]"
    if len(families) > 1:
        lines["OpenMMLab"] += ": they overwrite each other; uninstall one"
    for name in (*NEEDED, *EXTENDED):
        try:
            lines[name] = import_module(name).__version__
        except Exception as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == name
            lines[name] = "not installed" if missing else f"cannot be imported: {type(error).__name__}: {error}"
            failed |= name in NEEDED or not missing
    lines["mmcv operators"] = "compiled" if mmcv_ops.find_compiled() else "provided by mmlisa, on torchvision"
    try:
        from mmengine.utils.dl_utils import collect_env

        lines |= {name: value for name, value in collect_env().items() if "\n" not in str(value)}
    except ImportError as error:
        lines["environment"] = f"MMEngine cannot report it: {error}"
    width = max(map(len, lines))
    print("\n".join(f"{name:{width}}  {value}" for name, value in lines.items()))
    sys.exit(failed)
