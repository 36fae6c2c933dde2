"""Download of checkpoints into PyTorch's cache."""

import hashlib
import re
from pathlib import Path

import torch
from filelock import FileLock

from mmlisa.errors import UserError


def _address(scheme: str, name: str) -> str | None:
    """Return the address that MMEngine's list of a scheme has for a name."""
    from mmengine.runner import checkpoint  # needs OpenCV, which a backbone does not

    lists = {"torchvision": checkpoint.get_torchvision_models, "open-mmlab": checkpoint.get_external_models}
    return lists.get(scheme, dict)().get(name)


def download(source: str | Path) -> Path:
    """Return the file ``source``, downloaded if it is ``http(s)://…``, ``'torchvision://NAME'`` or ``'open-mmlab://NAME'``.

    PyTorch's cache keeps a download. If the file's name ends in the first digits of its SHA-256, as OpenMMLab's and
    torchvision's names do, they are compared.

    Raises:
        UserError: an unsupported address, or a name that MMEngine's list lacks.
        ConnectionError: the download failed, or the file does not have the checksum in its name.
    """
    scheme, separator, name = str(source).partition("://")
    if not separator:
        return Path(source).expanduser()
    url = str(source) if scheme in ("http", "https") else _address(scheme, name)
    if url is None:
        raise UserError(f"source={source!r} is not a known address; download the file and name it")
    path = Path(url.split("?")[0].split("#")[0])
    key = hashlib.sha256(url.encode()).hexdigest()[:8]  # many files are called model.pth
    target = Path(torch.hub.get_dir()) / "checkpoints" / f"{path.stem}-from-{key}{path.suffix}"
    checksum = re.search(r"-(?!20\d{6}$)([0-9a-f]{8,64})$", path.stem)  # eight digits that begin with 20 are a date
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{target}.lock"):  # of several processes, the first downloads
            if not target.is_file():
                torch.hub.download_url_to_file(url, str(target), checksum and checksum[1])
    except (OSError, RuntimeError) as error:  # RuntimeError: another checksum
        raise ConnectionError(f"source={source!r} could not be downloaded: {error}") from error
    return target
