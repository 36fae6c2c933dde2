"""Checkpoints from anywhere: every address that MMEngine knows is downloaded, checked, and then read by our reader."""

import hashlib
import io
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

import torch
from mmengine.dist import barrier, get_dist_info
from mmengine.fileio import get_file_backend
from mmengine.logging import print_log
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from .latest import take_read_ahead
from .reading import CheckpointError, MapLocation, load_checkpoint, read_checkpoint
from .writing import writing_whole

_TIMEOUT_SECONDS = 60


def fetch_checkpoint(source: str, map_location: MapLocation = "cpu") -> dict[str, Any]:
    """Reads a checkpoint from a file or from any address that MMEngine knows; see :func:`load_checkpoint`.

    Raises:
        FileNotFoundError: no such file, or a name that the model zoo does not have.
        CheckpointError: damaged, unsafe, or not what its checksum says.
        ConnectionError: the download failed.
    """
    # The last pattern is empty and fits every file.
    load = next(load for patterns, load in _LOADERS.items() if any(re.match(pattern, source) for pattern in patterns))
    return load(source, map_location)


def use_safe_loader() -> None:
    """Makes MMEngine's own loads in this process read through :func:`fetch_checkpoint`, whatever the address.

    MMEngine falls back to an unsafe pickle load with a warning, and loads what it downloads without any check; with this both
    are errors.
    """
    for patterns, loader in _LOADERS.items():
        CheckpointLoader.register_scheme(prefixes=list(patterns), loader=loader, force=True)


def download(url: str, folder: Path | None = None) -> Path:
    """Downloads a file into torch's cache of checkpoints, unless it is there.

    A cached file is used again only while its SHA-256 is the one it was downloaded with; where the file's name ends in the
    first digits of one, as OpenMMLab's and torchvision's do, that is checked, too.

    Raises:
        ConnectionError: the server does not answer, refuses, or ends early.
        CheckpointError: the file does not have the checksum in its name.
    """
    path = Path(urlparse(url).path)
    promised = re.search(r"-([0-9a-f]{8,64})$", path.stem)
    key = hashlib.sha256(url.encode()).hexdigest()[:8]  # many files are called model.pth
    target = (folder or Path(torch.hub.get_dir()) / "checkpoints") / f"{path.stem}-from-{key}{path.suffix}"
    note = target.with_name(f"{target.name}.sha256")
    if target.is_file() and note.is_file():
        if _sha256(target) == note.read_text().strip():
            return target
        print_log(f"{target} has changed since it was downloaded; it is downloaded again", logger="current", level=30)
    print_log(f"downloading {url} to {target}", logger="current")
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with writing_whole(target) as file:
        try:
            _copy(url, file, digest)
        except (URLError, TimeoutError, OSError) as error:
            raise ConnectionError(f"{url} could not be downloaded: {error}") from error
        if promised and not digest.hexdigest().startswith(promised[1]):
            raise CheckpointError(f"{url} has the SHA-256 {digest.hexdigest()}, not {promised[1]}… as its name says")
    with writing_whole(note) as file:
        file.write(digest.hexdigest().encode())
    return target


def _copy(url: str, file: Any, digest: Any) -> None:
    with urlopen(Request(url, headers={"User-Agent": "mmlisa"}), timeout=_TIMEOUT_SECONDS) as response:
        expected, received = response.headers.get("Content-Length"), 0
        while chunk := response.read(1 << 20):
            file.write(chunk)
            digest.update(chunk)
            received += len(chunk)
    if expected is not None and received != int(expected):
        raise ConnectionError(f"the connection ended after {received} of {expected} bytes")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def load_from_local(filename: str, map_location: MapLocation = None) -> dict[str, Any]:
    return take_read_ahead(filename, map_location) or load_checkpoint(filename, map_location)


def load_from_http(url: str, map_location: MapLocation = None) -> dict[str, Any]:
    """The first process downloads, the others find the file in the cache."""
    rank, processes = get_dist_info()
    if processes > 1 and rank > 0:
        barrier()
    try:
        path = download(url)
    finally:
        if processes > 1 and rank == 0:
            barrier()
    return load_checkpoint(path, map_location)


def load_from_torchvision(source: str, map_location: MapLocation = None) -> dict[str, Any]:
    return _load_named(source, mmengine_checkpoint.get_torchvision_models(), map_location)


def load_from_openmmlab(source: str, map_location: MapLocation = None) -> dict[str, Any]:
    scheme, name = source.split("://", 1)
    name = mmengine_checkpoint.get_deprecated_model_names().get(name, name)
    return _load_named(f"{scheme}://{name}", mmengine_checkpoint.get_external_models(), map_location)


def load_from_mmcls(source: str, map_location: MapLocation = None) -> dict[str, Any]:
    checkpoint = _load_named(source, mmengine_checkpoint.get_mmcls_models(), map_location)
    state = checkpoint.get("state_dict", checkpoint)
    return {"state_dict": {n.removeprefix("backbone."): t for n, t in state.items() if n.startswith("backbone.")}}


def load_from_ceph(source: str, map_location: MapLocation = None) -> dict[str, Any]:
    content = get_file_backend(source, backend_args={"backend": "petrel"}).get(source)
    return read_checkpoint(io.BytesIO(content), f"checkpoint {source}", map_location)


def load_from_pavi(source: str, map_location: MapLocation = None) -> dict[str, Any]:
    try:
        from pavi import modelcloud
    except ImportError as error:
        raise ImportError(f"{source} needs the package pavi, which is not installed") from error
    model = modelcloud.get(source.removeprefix("pavi://"))
    with TemporaryDirectory() as folder:
        path = os.path.join(folder, model.name)
        model.download(path)
        return load_checkpoint(path, map_location)


def _load_named(source: str, addresses: Mapping[str, str], map_location: MapLocation) -> dict[str, Any]:
    """A name in one of the lists that MMEngine keeps."""
    name = source.split("://", 1)[1]
    if name not in addresses:
        near = get_close_matches(name, addresses, n=3)
        raise FileNotFoundError(f"{source}: MMEngine's list has no {name!r}; the closest are {near or 'none'}")
    if addresses[name].startswith(_HTTP):
        return load_from_http(addresses[name], map_location)
    return load_checkpoint(Path(mmengine_checkpoint._get_mmengine_home()) / addresses[name], map_location)


_HTTP = ("http://", "https://")
# The patterns by which MMEngine tells addresses apart; it logs the loaders by their names.
_LOADERS: dict[tuple[str, ...], Callable[..., dict[str, Any]]] = {
    _HTTP: load_from_http,
    ("modelzoo://", "torchvision://"): load_from_torchvision,
    ("open-mmlab://", "openmmlab://"): load_from_openmmlab,
    ("mmcls://",): load_from_mmcls,
    (r"(\S+\:)?s3://", r"(\S+\:)?petrel://"): load_from_ceph,
    ("pavi://",): load_from_pavi,
    ("",): load_from_local,
}
