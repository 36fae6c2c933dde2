"""The table of docs/reproduce.md: for each accuracy of a paper, its config, start weights, batch, length and checkpoint."""

from pathlib import Path
from typing import Any

import yaml
from mmengine.config import Config

from mmlisa.training.config import averages_weights, load_config
from model_zoo import read_header

CONFIGS = Path(__file__).parents[2] / "configs"
GPUS = 8


def on_gpus(batch: int, total: int, may_accumulate: bool) -> str:
    """Return the flag of ``mmlisa train`` that gives ``total`` images on eight GPUs; a dash if the config has it."""
    if GPUS * batch == total:
        return "–"
    if may_accumulate and total % (GPUS * batch) == 0:  # the batch of each GPU, which batch norms see, stays
        return f"`--cfg-options optim_wrapper.accumulative_counts={total // (GPUS * batch)}`"
    return f"`--batch {total // GPUS}`"


def find_start(entry: dict[str, Any], cfg: Config) -> str:
    """Return the classifier, or else the published weights, from which the config of an entry in the model index starts."""
    return (cfg.get("pretrained_by") or entry["Metadata"]["Starts from"]).removesuffix(".py")


def to_markdown() -> str:
    """Return a row per config that quotes an accuracy of a paper, and per config from which one of those starts."""
    page = (
        "\n| row of the paper | config | starts from | images a step | for 8 GPUs | length | weights of the last checkpoint "
        "| paper |\n" + "|---" * 8 + "|\n"
    )
    entries = yaml.safe_load((CONFIGS / "metafile.yml").read_text(encoding="utf-8"))["Models"]
    cfgs = {entry["Name"]: load_config(CONFIGS.parent / entry["Config"]) for entry in entries if "Results" in entry}
    starts = {find_start(entry, cfgs[entry["Name"]]) for entry in entries if "Results" in entry}
    for entry in entries:
        name = entry["Name"]
        if name not in cfgs and name not in starts:
            continue
        cfg = cfgs.get(name) or load_config(CONFIGS.parent / entry["Config"])
        title, accuracy, source = read_header(CONFIGS.parent / entry["Config"])
        batch, total = cfg.train_dataloader.batch_size, cfg.auto_scale_lr.base_batch_size
        loop = cfg.train_cfg
        by_epoch, averaged = "max_epochs" in loop, averages_weights(cfg)
        columns = (
            f"{source}: {title}" if source else title,
            f"`{name}`",
            find_start(entry, cfg),
            f"{total} ({total // batch} x {batch})",
            on_gpus(batch, total, may_accumulate=by_epoch and not averaged),
            f"{loop.max_epochs} epochs" if by_epoch else f"{loop.max_iters} iterations",
            "averaged" if averaged else "raw",
            accuracy or "–",
        )
        page += f"| {' | '.join(columns)} |\n"
    return page
