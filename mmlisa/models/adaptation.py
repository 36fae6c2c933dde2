"""A backbone with another attention learns the features of the trained one, from images without labels.

Two stages, after ViT-AdaLA: first each attention learns what its teacher's returns for the teacher's input, then the maps are
aligned.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.logging import MessageHub
from mmengine.model import BaseModel
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.attention.softmax import SoftmaxAttention
from mmlisa.models.init_cfg import SafeInit
from mmlisa.models.swap import agreement
from mmlisa.registry import MODELS

_MEASURED = 24  # images whose variance becomes the unit of a block's loss


@MODELS.register_module()
class Adaptation(SafeInit, BaseModel):
    """A student backbone and its teacher, as a model for MMEngine's loops.

    Checkpoints have the student as ``backbone.*`` with its options, as those of a detector have it: ``--pretrained FILE`` and
    ``init_cfg`` take them.

    Args:
        backbone: config of the student. Its ``init_cfg`` names the weights of the teacher, with which the student starts.
        teacher: config of the teacher, the same backbone with its own attention and without ``init_cfg``.
        aligned: share of the training, at its end, in which the maps are aligned. Before it, the attentions learn one by one.
        trained: parts of names of the parameters that are trained, all others are frozen; None for all.

    Raises:
        UserError: no attention of the student differs from its teacher's, ``init_cfg`` is missing, or, in ``init_weights``, the
            student has no place for a weight.
    """

    def __init__(
        self,
        backbone: dict[str, Any],
        teacher: dict[str, Any],
        aligned: float = 0.5,
        trained: Sequence[str] | None = ("attn.", "norm1."),
        data_preprocessor: dict[str, Any] | None = None,
        init_cfg: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(data_preprocessor, init_cfg)
        if not backbone.get("init_cfg"):
            raise UserError(
                "model.backbone has no init_cfg: the teacher would have random weights; give it, or --pretrained"
            )
        student = {key: value for key, value in backbone.items() if key != "init_cfg"}
        self.aligned = aligned
        self.backbone = MODELS.build(student)
        self.teacher = MODELS.build({**teacher, "init_cfg": backbone["init_cfg"]}).requires_grad_(False).eval()
        self.names = self._find_changed()
        if not self.names:
            raise UserError("model.backbone.attention is that of model.teacher; set another type")
        if trained is not None:
            for name, parameter in self.backbone.named_parameters():
                parameter.requires_grad_(any(part in name for part in trained))
        self.register_buffer("variances", torch.zeros(len(self.names)))
        self.register_buffer("measured", torch.zeros((), dtype=torch.long))

    def _find_changed(self) -> list[str]:
        """Return the names of the softmax attentions of the teacher in whose place the student has another operator."""
        students = dict(self.backbone.named_modules())
        changed = []
        for name, module in self.teacher.named_modules():
            if not isinstance(module, SoftmaxAttention):
                continue
            if name in students and type(students[name]) is not type(module):
                changed.append(name)
        return changed

    def init_more(self) -> None:
        """Give the weights of the teacher to the student."""
        _, without = self.backbone.load_state_dict(self.teacher.state_dict(), strict=False)
        if without:
            raise UserError(f"model.backbone has no {without[0]} of model.teacher; both must be of one type and arch")

    def train(self, mode: bool = True) -> "Adaptation":
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, inputs: Tensor, data_samples: Any = None, mode: str = "tensor") -> Any:
        """Return the losses of images ``[B, 3, H, W]`` with ``mode='loss'``, and the student's maps otherwise."""
        if mode != "loss":
            return self.backbone(inputs)
        progress = MessageHub.get_current_instance()
        if progress.get_info("iter") < (1 - self.aligned) * progress.get_info("max_iters"):
            return self._teach_attentions(inputs)
        return self._align(inputs)

    def _teach_attentions(self, images: Tensor) -> dict[str, Tensor]:
        """Compare each attention with its teacher's on the teacher's input, in units of the variance of what that returns."""
        calls: dict[str, tuple[Tensor, Any, Tensor]] = {}
        with ExitStack() as stack, torch.no_grad():
            for name in self.names:

                def note(_: nn.Module, inputs: tuple, output: Tensor, name: str = name) -> None:
                    calls[name] = (*inputs, output)

                stack.enter_context(self.teacher.get_submodule(name).register_forward_hook(note))
            self.teacher(images)
        if self.training and self.measured < _MEASURED:
            new = torch.stack([calls[name][2].float().var() for name in self.names])
            count = self.measured + len(images)
            self.variances += (new - self.variances) * len(images) / count
            self.measured.copy_(count)
        errors = []
        for index, name in enumerate(self.names):
            x, grid, expected = calls[name]
            found = self.backbone.get_submodule(name)(x, grid)
            errors.append(F.mse_loss(found.float(), expected.float()) / self.variances[index])
        return {"loss_attention": torch.stack(errors).mean()}

    def _align(self, images: Tensor) -> dict[str, Tensor]:
        """Compare the tokens of each map, less the teacher's mean: one less their cosine, and their squared difference.

        ``agreement`` is the cosine of the last map.
        """
        with torch.no_grad():
            expected = self.teacher(images)
        cosines, errors = [], []
        for found, target in zip(self.backbone(images), expected, strict=True):
            found, target = found.float(), target.float()
            mean = target.mean((2, 3), keepdim=True)
            cosines.append(agreement(found, target))
            errors.append(F.mse_loss(found, target) / (target - mean).square().mean())
        cosine, error = torch.stack(cosines), torch.stack(errors)
        return {"loss_maps": (1 - cosine + error).mean(), "agreement": cosine[-1].detach()}
