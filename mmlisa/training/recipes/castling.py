"""Schedule, record and removal of Castling-ViT's auxiliary branch during training."""

from typing import Any, Literal

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import nn

from mmlisa.errors import UserError
from mmlisa.models.attention import castling_operators, drop_aux
from mmlisa.registry import HOOKS


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
