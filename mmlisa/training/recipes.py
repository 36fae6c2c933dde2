"""Parts of published training recipes: Castling-ViT's schedule, averages of the weights, learning rates by layer, clipping."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import comb
from typing import Any, Literal

import torch
from mmengine.hooks import EMAHook, Hook
from mmengine.model import BaseAveragedModel, is_model_wrapper
from mmengine.optim import AmpOptimWrapper, DefaultOptimWrapperConstructor, OptimWrapper
from mmengine.runner import Runner, autocast
from timm.optim import Lamb
from timm.utils.agc import adaptive_clip_grad
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.attention import castling_operators, drop_aux
from mmlisa.registry import HOOKS, MODELS, OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS, OPTIMIZERS

OPTIMIZERS.register_module(name="Lamb", module=Lamb)


@HOOKS.register_module()
class CastlingHook(Hook):
    """Set the threshold ε of all auxiliary branches, record the entries that their masks keep, and drop the branches at the end.

    Number and share of the non-zero mask entries of each layer go to MMEngine's visualizer as ``castling/…`` (Castling-ViT,
    Fig. 6). A model without auxiliary branches is a UserError.

    Args:
        schedule: ``'constant'`` keeps ε at ``epsilon``. From ``begin`` on, ``'linear'`` raises it to 1 at the end, and ``'step'``
            sets it to 1, which empties the mask. The maximum of a row of N tokens is at least 1 / N, so that a constant ε does
            not empty the masks of N < 1 / ε tokens.
        epsilon: the first value; the paper's is 0.02.
        begin: share of the training at which the change begins, from 0 to 1.
        interval: iterations between two records.
    """

    # After the hooks that change the weights, before the loggers.
    priority = "BELOW_NORMAL"

    def __init__(
        self,
        schedule: Literal["constant", "linear", "step"] = "constant",
        epsilon: float = 0.02,
        begin: float = 0.9,
        interval: int = 50,
    ) -> None:
        if schedule not in ("constant", "linear", "step"):
            raise UserError(f"schedule={schedule!r}; it must be 'constant', 'linear' or 'step'")
        if not 0 <= begin <= 1:
            raise UserError(f"begin={begin}; it must be a share of the training, from 0 to 1")
        self.schedule, self.epsilon, self.begin, self.interval = schedule, epsilon, begin, interval

    def threshold(self, progress: float) -> float:
        """Return ε at the share ``progress`` of the training."""
        if self.schedule == "constant" or progress < self.begin:
            return self.epsilon
        if self.schedule == "step" or self.begin == 1:
            return 1.0
        return self.epsilon + (1 - self.epsilon) * (progress - self.begin) / (1 - self.begin)

    def before_train(self, runner: Runner) -> None:
        if not castling_operators(_bare(runner.model)):
            raise UserError("CastlingHook: the model has no attention with aux=True")

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        for operator in castling_operators(_bare(runner.model)).values():
            operator.epsilon = self.threshold((runner.iter + 1) / runner.max_iters)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if runner.iter % self.interval:
            return
        for name, operator in castling_operators(_bare(runner.model)).items():
            count = 0.0 if operator.mask_count is None else float(operator.mask_count)  # none in a frozen branch
            ratio = count / operator.mask_size if count else 0.0
            for quantity, value in (("nonzero_count", count), ("nonzero_ratio", ratio)):
                # Checkpoints contain the message hub, so a resumed run continues the record.
                runner.message_hub.update_scalar(f"castling/{name}/{quantity}", value)
                runner.visualizer.add_scalar(f"castling/{name}/{quantity}", value, runner.iter)

    def after_train(self, runner: Runner) -> None:
        drop_aux(_bare(runner.model))


def _bare(model: nn.Module) -> nn.Module:
    return model.module if is_model_wrapper(model) else model


@MODELS.register_module()
class ThresholdEMA(BaseAveragedModel):
    """PaddleDetection's average with the "threshold" decay ``d_t = min(decay, (1 + t) / (10 + t))``, t from 0.

    PaddleDetection starts the average at zero and divides it by its bias, the sum ``1 - d_0 ⋯ d_t`` of the weights so far. This
    class computes the same value in one step by a moving average with momentum ``(1 - d_t) / (1 - d_0 ⋯ d_t)``, at first 1.
    """

    def __init__(self, model: nn.Module, decay: float = 0.9998, update_buffers: bool = False) -> None:
        super().__init__(model, update_buffers=update_buffers)
        self.decay = decay

    def avg_func(self, averaged_param: Tensor, source_param: Tensor, steps: int) -> None:
        t = int(steps)
        # Until the decay reaches its limit, the product is 1·2⋯(t+1) / (10·11⋯(t+10)) = 1 / C(t+10, 9); then it is almost zero.
        averaged_param.lerp_(source_param, (1 - min(self.decay, (1 + t) / (10 + t))) / (1 - 1 / comb(t + 10, 9)))


@HOOKS.register_module()
class CycleEMAHook(EMAHook):
    """MMEngine's EMA, restarted every ``cycle`` epochs as in PicoDet's recipe, by default with its :class:`ThresholdEMA`."""

    def __init__(self, cycle: int, ema_type: str = "mmlisa.ThresholdEMA", **options) -> None:
        super().__init__(ema_type=ema_type, **options)
        self.cycle = cycle

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        super().before_train_iter(runner, batch_idx, data_batch)
        # A training that is resumed in the middle of an epoch does not begin with batch 0.
        if batch_idx == 0 and runner.epoch and runner.epoch % self.cycle == 0:
            # At step 0 the average is the current weights.
            self.ema_model.steps.zero_()


@HOOKS.register_module()
class SelfDistillationHook(EMAHook):
    """MMEngine's EMA, whose average becomes the teacher of a :class:`mmlisa.models.heads.SelfDistilledClassifier` (MESA).

    This begins in the epoch ``distill_from``, counted from 0.
    """

    def __init__(self, distill_from: int, **options) -> None:
        super().__init__(**options)
        self.distill_from = distill_from

    def before_train_epoch(self, runner: Runner) -> None:
        super().before_train_epoch(runner)
        if runner.epoch >= self.distill_from:
            self.src_model.set_teacher(self.ema_model.module)


@OPTIM_WRAPPERS.register_module()
class AdaptiveClipOptimWrapper(OptimWrapper):
    """MMEngine's wrapper with timm's adaptive gradient clipping (Brock et al., "NFNets", Eq. 3).

    The gradient of each unit is clipped to a share of the norm of its weights, ``clip_grad=dict(clip_factor=0.01)``.
    """

    def __init__(self, *, clip_grad: dict[str, Any], **options: Any) -> None:
        super().__init__(clip_grad=clip_grad, **options)
        self.clip_func = adaptive_clip_grad


@OPTIM_WRAPPERS.register_module()
class AdaptiveClipAmpOptimWrapper(AdaptiveClipOptimWrapper, AmpOptimWrapper):
    """The same with automatic mixed precision; the gradients are clipped after they are unscaled."""


@OPTIM_WRAPPERS.register_module()
class Bf16OptimWrapper(OptimWrapper):
    """MMEngine's wrapper with autocast in bfloat16, which scales no loss; ``AmpOptimWrapper`` does, on GPUs only."""

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        with super().optim_context(model), autocast(dtype=torch.bfloat16):
            yield


@OPTIM_WRAPPERS.register_module()
class AdaptiveClipBf16OptimWrapper(AdaptiveClipOptimWrapper, Bf16OptimWrapper):
    """Both."""


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerwiseOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """MMEngine's rules of weight decay, and learning rates by part of the model and by layer of the backbone.

    MMEngine's ``custom_keys`` can set a rate, too, but exempt the parameters that they name from its other rules: the norms of a
    backbone with a rate of its own would decay.

    ``paramwise_cfg`` takes, beside MMEngine's keys:

    * ``lr_mults``: multipliers of the rate by the prefix of a parameter's name, ``{'backbone': 0.1}``; the longest prefix counts.
      A prefix that no parameter has is a UserError;
    * ``layer_decay``: the rate of a layer over the rate of the next one. The backbone's ``get_layer_depth`` counts the layers;
    * ``layer_groups``: ``'block'`` (default): each block is a layer; ``'convnext'``, for four stages: the first two stages, every
      three blocks of the third and the last stage are a layer each (ConvNeXt's fine-tuning).
    """

    def __init__(self, optim_wrapper_cfg: dict[str, Any], paramwise_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(optim_wrapper_cfg, paramwise_cfg)
        self.lr_mults: dict[str, float] = self.paramwise_cfg.get("lr_mults", {})
        self.layer_decay: float = self.paramwise_cfg.get("layer_decay", 1.0)
        self.layer_groups: str = self.paramwise_cfg.get("layer_groups", "block")

    def add_params(self, params: list[dict], module: nn.Module, prefix: str = "", **options: Any) -> None:
        super().add_params(params, module, prefix=prefix, **options)
        if prefix:  # MMEngine calls this method once per submodule, and for the whole model last
            return
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        unknown = [start for start in self.lr_mults if not any(name.startswith(start) for name in names.values())]
        if unknown:
            parts = sorted({name.split(".")[0] for name in names.values()})
            raise UserError(f"lr_mults names {unknown}; the model has {parts}")
        for group in params:
            name = names[id(group["params"][0])]
            starts = [start for start in self.lr_mults if name.startswith(start)]
            mult = self.lr_mults[max(starts, key=len)] if starts else 1.0
            if self.layer_decay < 1:
                mult *= self.layer_decay ** self._layers_above(name, module.backbone)
            group["lr"] = group.get("lr", self.base_lr) * mult

    def _layers_above(self, name: str, backbone: nn.Module) -> int:
        """Count the layers between a parameter and the head, whose parameters have none above them."""
        depth, count = backbone.get_layer_depth(name, "backbone.")
        if self.layer_groups == "block":
            return count - 1 - depth
        layers = convnext_layers([len(stage) for stage in backbone.layer_names()])
        return layers[count - 1] - layers[depth]  # stages after the last map do not count


def convnext_layers(depths: list[int]) -> list[int]:
    """Return ConvNeXt's layer of each depth that ``get_layer_depth`` counts: the stem, the blocks of four stages, the head."""
    if len(depths) != 4:
        raise UserError(f"layer_groups='convnext' needs a backbone of four stages, but this one has {len(depths)}")
    last = 3 + -(-depths[2] // 3)
    third = [3 + block // 3 for block in range(depths[2])]
    return [0, *[1] * depths[0], *[2] * depths[1], *third, *[last] * depths[3], last + 1]
