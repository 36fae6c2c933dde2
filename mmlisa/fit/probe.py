"""Time and memory of one training step: ``python -m mmlisa.fit.probe CONFIG RESULT.json SOURCE``, in a process of its own."""

import json
import os
import sys
import timeit
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.config import ConfigDict
from mmengine.device import get_device
from mmengine.runner import Runner

from mmlisa.checkpoints import CheckpointError
from mmlisa.conversion import read
from mmlisa.memory import peak_extra_bytes
from mmlisa.training.building import build_model
from mmlisa.training.config import load_config
from mmlisa.training.log import import_quietly

_BATCH = 2


def probe(config: str, source: str = "") -> dict[str, Any]:
    """Measures forward and backward of two images, with random weights: the time on average images, the memory on the largest.

    Args:
        config: file.
        source: published weights to look for; see :class:`mmlisa.conversion.PublishedWeights`.

    Returns:
        ``seconds_per_image``, ``per_image`` and ``fixed`` bytes of memory (``fixed``: weights, gradients and AdamW's averages),
        ``available`` bytes, and ``unavailable``: why ``source`` cannot be had, or an empty string.
    """
    cfg = load_config(config)
    device = torch.device(get_device())
    model = build_model(cfg).to(device).train()
    cfg.train_dataloader.update(batch_size=_BATCH, num_workers=0, persistent_workers=False)
    loader = cfg.train_dataloader
    average, largest = (next(iter(Runner.build_dataloader(each, seed=0))) for each in (loader, _at_largest(loader)))

    def step(batch: dict[str, Any]) -> None:
        with torch.autocast(device.type, enabled=device.type == "cuda"):
            losses = model(**model.data_preprocessor(batch, True), mode="loss")
        model.parse_losses(losses)[0].backward()
        model.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()

    peak = peak_extra_bytes(partial(step, largest), device.type)  # the first step; allocates and compiles
    times = timeit.repeat(partial(step, average), number=1, repeat=3)
    weights = sum(p.numel() for p in model.parameters())
    unavailable = ""
    if source:
        try:
            read(source)
        except (ConnectionError, CheckpointError, OSError) as error:
            unavailable = str(error)
    return {
        "seconds_per_image": min(times) / _BATCH,
        "per_image": peak / _BATCH,
        "fixed": 16 * weights,
        "available": torch.cuda.mem_get_info()[0] if device.type == "cuda" else _available_bytes(),
        "unavailable": unavailable,
    }


def _at_largest(loader: ConfigDict) -> ConfigDict:
    """The loader with images of random sizes at their largest, to which larger batches are padded."""
    loader = deepcopy(loader)
    for step in loader.dataset.pipeline:
        if ratios := step.get("ratio_range"):
            step.ratio_range = (max(ratios), max(ratios))
    return loader


def _available_bytes() -> int:
    """Available memory of the machine or of the container; file caches count as available."""
    try:
        free = 1024 * int(_numbers("/proc/meminfo")["MemAvailable:"])
    except OSError:  # not Linux: half of the memory, if the system tells
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 if hasattr(os, "sysconf") else 4 << 30
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        return min(free, limit - used + int(_numbers("/sys/fs/cgroup/memory.stat")["inactive_file"]))
    except (OSError, ValueError):  # no container, or no limit
        return free


def _numbers(file: str) -> dict[str, str]:
    """The second word of each line of a system's file, by the first."""
    return {words[0]: words[1] for words in map(str.split, Path(file).read_text().splitlines())}


if __name__ == "__main__":
    import_quietly()
    config, result, source = sys.argv[1:]
    Path(result).write_text(json.dumps(probe(config, source)))
