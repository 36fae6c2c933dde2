"""What a config trains with, reduced to the words in which papers describe it; ``papers.yml`` has what they say."""

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
import yaml
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import HOOKS, MODELS, PARAM_SCHEDULERS, DefaultScope
from torch import nn

PAPERS = ("lisa", "video", "flatten", "ivit", "castling", "newer", "hosts", "vitdet")
_SETS = {"train_scales", "undecayed", "interpolations"}


def stated() -> dict[str, dict[str, Any]]:
    """Return what the papers say of each config's recipe, by the config's name without its ending."""
    tables = yaml.safe_load(Path(__file__).with_name("papers.yml").read_text(encoding="utf-8"))
    return {
        name: said | {key: set(said[key]) for key in _SETS & said.keys()}
        for paper in PAPERS
        for names, said in tables[paper].items()
        for name in _expand(names)
    }


def _expand(names: str) -> Iterator[str]:
    parts = re.split(r"\{(.*?)\}", names)
    yield from map("".join, product(*(part.split(",") if i % 2 else [part] for i, part in enumerate(parts))))


# Images of a training epoch, for averages that change with every iteration.
_EPOCH = {"mmdet": 117266, "mmpretrain": 1281167}


def recipe(cfg: Config, model: nn.Module) -> dict[str, Any]:
    """The resolved recipe of a config of any OpenMMLab library, and of its model, which may be on the meta device.

    * ``clip``: a norm, or ``['adaptive', factor]``; ``batch``: of all devices together, the one ``lr`` is meant for;
    * ``epochs`` or ``iterations``; ``warmup``, in the same units or in iterations; ``decay``: its kind, None where constant, with
      the ``power`` of a polynomial; ``rates``: of the first iteration, after the warm-up, after the last iteration;
    * ``undecayed``: kinds of parameters; ``lr_mults``: part of the model -> its rates over the base rate, where they differ;
    * ``augments``: type -> alpha of mixing augmentations; ``ema``: type and final momentum; ``head_scale``: by how much smaller
      than its other layers a head's last one starts; ``mesa``: the weight of the self-distillation, and its first epoch;
    * ``rand_augment``: operations, level and its deviation; ``erasing``: its probability; ``clips``: frames, stride (None: one of
      each segment) and number, of training and test;
    * ``train_scales``: pixels, of every step that sets a size; ``max_size``: limit of the long side, beside short ones;
      ``class_share``: largest share of a class in a crop; ``batch_scales``: smallest and largest, where the images of a batch are
      resized together; ``pixels``: order, mean, std; ``evaluation``: steps of the test that change an image;
    * ``boxes``: of one-stage detectors, how many are kept before NMS and after it, the least score, and the IoU of NMS;
      ``towers``: the convolutions in their heads, and the channels.
    """
    optimizer = cfg.optim_wrapper.optimizer
    warmups = [s for s in cfg.param_scheduler if s.type == "LinearLR"]
    decays = [s for s in cfg.param_scheduler if s.type != "LinearLR"]
    every_epoch = bool(decays) and decays[0].get("by_epoch", True) and not decays[0].get("convert_to_iter_based")
    length = {"epochs": cfg.train_cfg.get("max_epochs"), "iterations": cfg.train_cfg.get("max_iters")}
    train = list(_steps(_dataset(cfg.train_dataloader).pipeline))
    test = list(_steps(_dataset(cfg.val_dataloader).pipeline)) if cfg.get("val_dataloader") else []
    augments = (cfg.model.get("train_cfg") or {}).get("augments") or []
    preprocessor = cfg.model.data_preprocessor
    rgb = preprocessor.get("bgr_to_rgb", preprocessor.get("to_rgb", False))
    undecayed, lr_mults, momenta = _groups(cfg, model)
    test_cfg = cfg.model.get("test_cfg") or {}
    batch_augments = (preprocessor.get("batch_augments") or []) if cfg.default_scope == "mmdet" else []
    mesa = [hook.distill_from for hook in cfg.custom_hooks if hook.type == "mmlisa.SelfDistillationHook"]
    if cfg.model.type == "mmlisa.SelfDistilledClassifier":
        mesa.insert(0, cfg.model.weight)
    clip = cfg.optim_wrapper.get("clip_grad") or {}
    box_head = cfg.model.get("bbox_head") or {}
    return {
        "optimizer": optimizer.type,
        "lr": optimizer.lr,
        "weight_decay": optimizer.weight_decay,
        "clip": ["adaptive", clip.clip_factor] if "clip_factor" in clip else clip.get("max_norm"),
        **{unit: number for unit, number in length.items() if number},
        "warmup": warmups[0].end if warmups else 0,
        "decay": decays[0].type if decays else None,
        "decays_every": ("epoch" if every_epoch else "iteration") if decays else None,
        "power": decays[0].get("power") if decays else None,
        "milestones": decays[0].get("milestones") if decays else None,
        "rates": _rates(json.dumps(cfg.param_scheduler), optimizer.lr, json.dumps(length)),
        "batch": cfg.auto_scale_lr.base_batch_size,
        "drop_path": cfg.model.backbone.get("drop_path_rate", 0.0),
        "train_scales": {size for step in train for size in _sizes(step)},
        "max_size": next((step.max_size for step in train if "max_size" in step), None),
        "class_share": next((step.cat_max_ratio for step in train if "cat_max_ratio" in step), None),
        "teacher": cfg.model.teacher.get("model_name") if "teacher" in cfg.model else None,
        "batch_scales": next(([*a.random_size_range] for a in batch_augments), None),
        "interpolations": {step.interpolation for step in train if step.type == "Resize" and "interpolation" in step},
        "evaluation": [word for step in test for word in _evaluation(step)],
        "augments": {a.type: a.alpha for a in augments},
        "label_smoothing": ((cfg.model.get("head") or {}).get("loss") or {}).get("label_smooth_val"),
        "rand_augment": next(
            ([s.num_policies, s.magnitude_level, s.magnitude_std] for s in train if s.type == "RandAugment"), None
        ),
        "erasing": next((step.erase_prob for step in train if step.type == "RandomErasing"), None),
        "clips": [
            [step.length, step.get("stride"), step.get("num_clips", 1)]
            for step in [*train, *test]
            if step.type == "mmlisa.LoadClips"
        ],
        "transforms": [step.type.removeprefix("mmlisa.") for step in train],
        "sampler": cfg.train_dataloader.sampler.type,
        "pixels": ["RGB" if rgb else "BGR", *preprocessor.mean, *preprocessor.std],
        "ema": _ema(cfg, model),
        "head_scale": (cfg.model.get("head") or {}).get("init_scale", 1.0),
        "mesa": mesa or None,
        "towers": [box_head.stacked_convs, box_head.in_channels] if "stacked_convs" in box_head else None,
        "boxes": [test_cfg.nms_pre, test_cfg.max_per_img, test_cfg.score_thr, test_cfg.nms.iou_threshold]
        if "nms_pre" in test_cfg
        else None,
        "momenta": momenta,
        "undecayed": undecayed,
        "lr_mults": lr_mults,
    }


def _dataset(loader: Any) -> Any:
    dataset = loader.dataset
    while "dataset" in dataset:
        dataset = dataset.dataset
    return dataset


def _steps(pipeline: Any) -> Iterator[Any]:
    """The steps of a pipeline, those inside of RandomChoice and the like included."""
    for step in pipeline:
        if isinstance(step, list):
            yield from _steps(step)
        else:
            yield step
            yield from _steps(step.get("transforms", []))


def _sizes(step: Any) -> Iterator[int | str]:
    for key in ("scale", "crop_size"):
        if key in step:
            yield _size(step[key])
    yield from map(_size, step.get("scales", []))


def _size(sides: Any) -> Any:
    return sides if isinstance(sides, int) else "x".join(map(str, sides))


def _evaluation(step: Any) -> Iterator[str]:
    """``'short 256'`` keeps the ratio of the sides, as ``'fit 1333x800'``; ``'squash 320x320'`` does not."""
    interpolation = step.get("interpolation", "bilinear")
    if step.type == "ResizeEdge":
        yield f"{step.edge} {step.scale} {interpolation}"
    elif step.type == "Resize":
        yield f"{'fit' if step.get('keep_ratio') else 'squash'} {_size(step.scale)} {interpolation}"
    elif step.type == "CenterCrop":
        yield f"crop {step.crop_size}"


@cache
def _rates(schedulers: str, lr: float, length: str) -> list[float]:
    """Rates of the first iteration, after the warm-up and after the last one, by MMEngine's own schedulers, to three digits."""
    length, optimizer = json.loads(length), torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=lr)
    per_epoch, warmup, built = 4, 0, []
    for options in json.loads(schedulers):
        by_epoch = options.get("by_epoch", True)
        if not by_epoch:  # a hundredth of the iterations has the same curve
            options |= {key: options[key] // 100 for key in ("begin", "end", "T_max") if key in options}
        if options["type"] == "LinearLR":
            warmup = options["end"] * (per_epoch if by_epoch else 1)
        options["optimizer"] = optimizer
        if options.pop("convert_to_iter_based", False):
            cls = PARAM_SCHEDULERS.get(options.pop("type"))
            built.append(cls.build_iter_from_epoch(**options, epoch_length=per_epoch))
        else:
            built.append(PARAM_SCHEDULERS.build(options))
    total = length["epochs"] * per_epoch if length["epochs"] else length["iterations"] // 100
    rates = []
    for i in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        for scheduler in built:
            if not scheduler.by_epoch or (i + 1) % per_epoch == 0:
                scheduler.step()
    rates.append(optimizer.param_groups[0]["lr"])
    return [float(f"{rates[i]:.3g}") for i in (0, warmup, -1)]


def _ema(cfg: Config, model: nn.Module) -> list[Any] | None:
    """Type of the averaged weights, and what the last iteration moves them, of the way to the newest ones."""
    hooks = [hook for hook in cfg.get("custom_hooks", []) if "EMA" in hook.type or "momentum" in hook]
    if not hooks:
        return None
    (options,) = hooks
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        hook = HOOKS.build({key: value for key, value in options.items() if key != "priority"})
        newest, average = nn.Linear(1, 1), nn.Linear(1, 1)
        nn.init.ones_(newest.weight)
        nn.init.zeros_(average.weight)
        averaged = MODELS.build(hook.ema_cfg, default_args=dict(model=average))
    epochs = cfg.train_cfg.max_epochs
    if "cycle" in options:
        epochs -= (epochs - 1) // options.cycle * options.cycle
    if any("running_mean" in name for name, _ in model.named_buffers()):
        assert averaged.update_buffers, "averaged weights beside the statistics of the last ones"
    averaged.steps.fill_(epochs * _EPOCH[cfg.default_scope] // cfg.auto_scale_lr.base_batch_size - 1)
    averaged.update_parameters(newest)
    return [type(averaged).__name__, float(f"{averaged.module.weight.item():.3g}")]


def _groups(cfg: Config, model: nn.Module) -> tuple[set[str], dict[str, list[float]], float | tuple[float, float]]:
    """Of the built optimizer: kinds of parameters that do not decay, rates over the base rate by part of the model, momenta."""
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    settings = {id(p): group for group in wrapper.optimizer.param_groups for p in group["params"] if p.requires_grad}
    base_lr, base_decay = cfg.optim_wrapper.optimizer.lr, cfg.optim_wrapper.optimizer.weight_decay
    decays, rates = {}, {}
    for name, kind, parameter in kinds(model):
        group = settings.pop(id(parameter))
        decays.setdefault(kind, set()).add(group["weight_decay"])
        rates.setdefault(name.split(".")[0], set()).add(float(f"{group['lr'] / base_lr:.3g}"))
    assert not settings, "the optimizer has parameters that the model does not have"
    for kind, values in decays.items():
        assert values in ({0.0}, {base_decay}), f"{kind}: weight decays {values}"
    differing = {part: sorted(values) for part, values in rates.items() if values != {1.0}}
    defaults = wrapper.optimizer.defaults
    momenta = tuple(defaults["betas"]) if "betas" in defaults else defaults["momentum"]
    return {kind for kind, values in decays.items() if values == {0.0}}, differing, momenta


def kinds(model: nn.Module) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Name, kind and parameter of all that train."""
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            if parameter.requires_grad:
                yield name, _kind(prefix, module, name.rpartition(".")[2], parameter), parameter


def _kind(prefix: str, module: nn.Module, leaf: str, parameter: nn.Parameter) -> str:
    """Norms and biases of heads and necks are kinds of their own, because papers treat some of them in another way.

    ``outer neck norm``: PicoDet's, of the maps that come in and of the coarsest one.
    """
    in_head, layer = prefix.startswith(("decode_head.", "auxiliary_head.")), type(module).__name__
    if "Norm" in layer:
        if "BatchNorm" in layer and (in_head or prefix.startswith("roi_head.")):
            return "head norm"
        if prefix.startswith(("neck.transforms.", "neck.top.")):
            return "outer neck norm"
        is_fusing = prefix.startswith(("neck.top_down.", "neck.downsamples.", "neck.bottom_up."))
        return "fusing neck norm" if is_fusing else "norm"
    if leaf.endswith("bias") and parameter.ndim == 1 and "ReLU" not in layer:
        return "head bias" if in_head else "bias"
    if "relative_position" in leaf or leaf.startswith("rel_pos"):
        return "table"
    if isinstance(module, nn.Embedding):
        return "embedding"
    named = {"positional_encoding": "keys' position", "position": "position", "position_embedding": "position"}
    return (named | {"cls_token": "token", "reg_token": "token"}).get(leaf) or (
        "scale" if parameter.ndim == 1 else "weight"
    )
