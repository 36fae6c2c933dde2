"""Provide mmlisa's operators to every program of the environment, also to those that never import mmlisa.

    python -m mmlisa.mmcv_ops install|uninstall|status

``install`` writes a .pth file into site-packages. Python reads it at each start and imports mmlisa, which takes a few
milliseconds and loads no other package. If mmlisa is gone, the file does nothing.
"""

import argparse
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from mmlisa.mmcv_ops import find_compiled

# Python reads .pth files in alphabetical order, so this one comes after the file of an editable mmlisa.
NAME = "mmlisa_mmcv_ops.pth"
# Python executes lines that begin with "import" and takes others for folders. It would print an error at each start.
LINE = 'import sys; exec("try:\\n import mmlisa\\nexcept Exception:\\n pass")\n'


def install(site: Path) -> str:
    """Write the file and try it.

    Raises:
        RuntimeError: Python does not find mmlisa at its start. The file is removed again.
    """
    path = site / NAME
    path.write_text(LINE)
    # -I and cwd="/" keep a clone in the current folder or in PYTHONPATH from being found.
    code = f"import site, sys; site.addsitedir({str(site)!r}); sys.exit('mmlisa.mmcv_ops' not in sys.modules)"
    if subprocess.run([sys.executable, "-I", "-c", code], cwd="/").returncode:
        path.unlink()
        raise RuntimeError(
            f"mmlisa is not installed for {sys.executable}; first: pip install -e {Path(__file__).parents[2]}"
        )
    return f"installed: {path}"


def uninstall(site: Path) -> str:
    """Remove the file."""
    path = site / NAME
    if not path.exists():
        return f"not installed: {path} does not exist"
    path.unlink()
    return f"uninstalled: {path}"


def status(site: Path) -> str:
    """Report whether the file exists and which operators mmcv gets."""
    path = site / NAME
    every = f"installed for every program: {path}" if path.exists() else "active in programs that import mmlisa"
    if not find_spec("mmcv"):
        return f"{every}\nmmcv is not installed"
    compiled = find_compiled()
    return f"{every}\noperators: {f'mmcv has compiled ones, {compiled}' if compiled else 'torchvision and PyTorch'}"


def main() -> None:
    commands = {function.__name__: function for function in (install, uninstall, status)}
    parser = argparse.ArgumentParser(
        prog="python -m mmlisa.mmcv_ops", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=commands)
    command = commands[parser.parse_args().command]
    try:
        sys.stdout.write(command(Path(sysconfig.get_path("purelib"))) + "\n")
    except (OSError, RuntimeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
