"""Checkpoints from files and addresses: downloaded, verified, and read by :func:`load_checkpoint`."""

import hashlib
import re
import threading
from difflib import get_close_matches
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import torch
from mmengine.dist import barrier, get_dist_info
from mmengine.logging import print_log
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from .reading import CheckpointError, MapLocation, load_checkpoint
from .writing import writing_whole

_TIMEOUT_SECONDS = 60
_URL_CHARACTERS = "%/:?&=#~!$'()*+,;@[]"  # stay as they are; all others, such as spaces, are quoted
_one_download = threading.Lock()


def fetch_checkpoint(source: str, map_location: MapLocation = "cpu") -> dict[str, Any]:
    """Read a checkpoint with :func:`load_checkpoint` from any source of :func:`local_file`."""
    return load_checkpoint(local_file(source), map_location)


def local_file(source: str) -> Path:
    """Return the file that ``source`` names, downloaded if it is an address.

    Args:
        source: a file, an ``http(s)://`` address, ``'torchvision://NAME'`` or ``'open-mmlab://NAME'``.

    Raises:
        FileNotFoundError: a name that MMEngine's list does not have.
        CheckpointError: an unsupported address, or the file does not have the checksum in its name.
        ConnectionError: the download failed.
    """
    scheme, separator, name = source.partition("://")
    if separator and scheme not in ("http", "https"):
        source = _listed_address(source, scheme, name)
    return _download_once(source) if source.startswith(("http://", "https://")) else Path(source)


def use_safe_loader() -> None:
    """Replace all of MMEngine's checkpoint loaders in this process by :func:`fetch_checkpoint`.

    MMEngine's own loaders fall back to an unsafe pickle load with a warning, and do not verify what they download.
    """
    CheckpointLoader.register_scheme(["", *CheckpointLoader._schemes], load_from_mmlisa, force=True)


def load_from_mmlisa(filename: str, map_location: MapLocation = None) -> dict[str, Any]:
    """Read a checkpoint for MMEngine, which logs what follows ``load_from_`` in the name of a loader."""
    return fetch_checkpoint(filename, map_location)


def _listed_address(source: str, scheme: str, name: str) -> str:
    if scheme in ("torchvision", "modelzoo"):
        addresses = mmengine_checkpoint.get_torchvision_models()
    elif scheme in ("open-mmlab", "openmmlab"):
        addresses = mmengine_checkpoint.get_external_models()
        name = mmengine_checkpoint.get_deprecated_model_names().get(name, name)
    else:
        raise CheckpointError(
            f"checkpoint {source!r}: addresses of this kind are not supported; download it and name the file"
        )
    if name not in addresses:
        near = get_close_matches(name, addresses, n=3)
        raise FileNotFoundError(f"{source}: MMEngine's list has no {name!r}; the closest are {near or 'none'}")
    return addresses[name]


def _download_once(url: str) -> Path:
    """Download in the first process while the others wait, and find the file in the cache there."""
    rank, processes = get_dist_info()
    if processes > 1 and rank > 0:
        barrier()
    try:
        return download(url)
    finally:
        if processes > 1 and rank == 0:
            barrier()


def download(url: str) -> Path:
    """Download a file into PyTorch's cache of checkpoints, unless it is there.

    A cached file is used again only while it has the SHA-256 with which it was downloaded. If the name of the file ends in the
    first digits of its SHA-256, as OpenMMLab's and torchvision's names do, the download is compared with them.

    Raises:
        ConnectionError: an invalid address, or the server does not answer, refuses, or ends early.
        CheckpointError: the file does not have the checksum in its name.
    """
    path = Path(url.split("?")[0].split("#")[0].partition("://")[2])
    promised = re.search(r"-([0-9a-f]{8,64})$", path.stem)
    key = hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:8]  # many files are called model.pth
    target = Path(torch.hub.get_dir()) / "checkpoints" / f"{path.stem[:100]}-from-{key}{path.suffix[:20]}"
    note = target.with_name(f"{target.name}.sha256")
    with _one_download:
        if target.is_file() and note.is_file():
            if hashlib.sha256(target.read_bytes()).hexdigest() == note.read_text().strip():
                return target
            print_log(
                f"{target} has changed since it was downloaded; it is downloaded again", logger="current", level=30
            )
        print_log(f"downloading {url} to {target}", logger="current")
        try:
            request = Request(quote(url, safe=_URL_CHARACTERS), headers={"User-Agent": "mmlisa"})
            with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                int(response.headers.get("Content-Length", 0))  # http.client ignores one that is not a number
                content = response.read()
        # A malformed or short answer is an HTTPException, a malformed address or length a ValueError.
        except (OSError, HTTPException, ValueError) as error:
            raise ConnectionError(f"{url} could not be downloaded: {type(error).__name__}: {error}") from error
        digest = hashlib.sha256(content).hexdigest()
        if promised and not digest.startswith(promised[1]):
            message = f"{url} has the SHA-256 {digest}, not {promised[1]}… as its name says"
            if not re.fullmatch(r"20\d{6}", promised[1]):
                raise CheckpointError(message)
            print_log(f"{message}; the name may hold a date", logger="current", level=30)
        for file, part in ((target, content), (note, digest.encode())):
            with writing_whole(file) as whole:
                whole.write(part)
    return target
