"""The newest checkpoint of a training."""

import zipfile
from pathlib import Path

from mmengine.runner import find_latest_checkpoint


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """Return the checkpoint that MMEngine saved last, or the one before if that file is missing or truncated.

    Only the directory at the end of each file is read, not its tensors.

    Args:
        work_dir: folder with MMEngine's ``last_checkpoint``, which may name a file in another folder.
    """
    last = Path(find_latest_checkpoint(str(work_dir)) or work_dir)
    folders = {Path(work_dir), last.parent}
    saved = [path for folder in folders for kind in ("epoch", "iter") for path in folder.glob(f"{kind}_*.pth")]
    newest = sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True)
    return next((str(path) for path in (last, *newest) if zipfile.is_zipfile(path)), None)
