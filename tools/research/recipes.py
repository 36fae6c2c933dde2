"""The table of docs/reproduce.md: for each accuracy of a paper, its config, start weights, batch, length and checkpoint."""

from pathlib import Path

import yaml

from mmlisa.training.config import load_config
from model_zoo import read_header

CONFIGS = Path(__file__).parents[2] / "configs"
GPUS = 8


def on_gpus(batch: int, total: int) -> str:
    """Return the flag of ``mmlisa train`` that gives ``total`` images on eight GPUs; a dash if the config has it."""
    if GPUS * batch == total:
        return "–"
    if total % (GPUS * batch) == 0:  # the batch of each GPU, which batch norms see, stays
        return f"`--cfg-options optim_wrapper.accumulative_counts={total // (GPUS * batch)}`"
    return f"`--batch {total // GPUS}`"


def to_markdown() -> str:
    """Return a row per config that quotes an accuracy of a paper."""
    page = (
        "\n| row of the paper | config | starts from | images a step | for 8 GPUs | length | weights of the last checkpoint "
        "| paper |\n" + "|---" * 8 + "|\n"
    )
    for entry in yaml.safe_load((CONFIGS / "metafile.yml").read_text(encoding="utf-8"))["Models"]:
        if "Results" not in entry:
            continue
        path = CONFIGS.parent / entry["Config"]
        cfg = load_config(path)
        title, accuracy, source = read_header(path)
        start = cfg.get("pretrained_by") or entry["Metadata"]["Starts from"]
        batch, total = cfg.train_dataloader.batch_size, cfg.auto_scale_lr.base_batch_size
        loop = cfg.train_cfg
        length = f"{loop.max_epochs} epochs" if "max_epochs" in loop else f"{loop.max_iters} iterations"
        averaged = any("EMA" in hook.type or "SelfDistillation" in hook.type for hook in cfg.custom_hooks)
        columns = (
            *(f"{source}: {title}", f"`{path.stem}`", start.removesuffix(".py")),
            f"{total} ({total // batch} x {batch})",
            *(on_gpus(batch, total), length, "averaged" if averaged else "raw", accuracy),
        )
        page += f"| {' | '.join(columns)} |\n"
    return page
