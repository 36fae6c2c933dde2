"""Renaming of published weights to the names of this package and of the OpenMMLab libraries."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.published import Network

from .networks import hosts_of
from .rules import HEAD, PADDLE_HEAD, PADDLE_PAN, apply_rules

_LEVIT = ("head", "head_dist")
_PICODET = "neck.conv_t.convs.0.conv.weight"
_REG_MAX = 7  # largest distance in all published PicoDets
# Entries found only in other heads: towers for the boxes, or PicoHeadV2's attention and alignment (release 2022.03).
_OTHER_HEADS = ("head.conv_feat.reg_conv_", "head.head_reg", "head.conv_feat.se.", "head.cls_align.")


@dataclass(frozen=True)
class Renamed:
    """Weights of a published backbone under the names of this package.

    Attributes:
        network: name of the published network.
        state: the weights.
        dropped: names in the file that the rules drop.
        origins: the name in the file for each name in ``state``.
    """

    network: str
    state: dict[str, Tensor]
    dropped: tuple[str, ...]
    origins: dict[str, str]


def rename(state: Mapping[str, Tensor], network: Network, backbone: type[nn.Module]) -> Renamed:
    """Rename a published network's weights, without a prefix, for one of our backbones; UserError if it takes none of them."""
    if network not in getattr(backbone, "published", ()):
        hosts = ", ".join(host.__name__ for host in hosts_of(network))
        raise UserError(f"{network.name} weights have no place in {backbone.__name__}; they fit {hosts}")
    rules = (*network.rules, *backbone.published[network])
    renamed, dropped, origins = {}, [], {}
    for name, tensor in (network.prepare(state) if network.prepare else state).items():
        names = apply_rules(rules, name)
        names = names if isinstance(names, tuple) else (names,)
        if not any(names):
            dropped.append(name)
        for new, chunk in zip(names, tensor.chunk(len(names)) if len(names) > 1 else (tensor,), strict=True):
            if new is not None:
                renamed[new], origins[new] = chunk, name
    return Renamed(network.name, _with_counters(renamed), tuple(dropped), origins)


def _with_counters(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the numbers of batches, which Paddle's batch norms do not count."""
    means = [name for name in state if name.endswith("running_mean")]
    return {name.replace("running_mean", "num_batches_tracked"): torch.tensor(0) for name in means} | state


def rename_heads(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the necks and heads of a whole model under the names of the libraries and of this package.

    OpenMMLab's and the authors' detectors and segmentors have these names already. Of PaddleDetection's PicoDet, a head other
    than :class:`mmlisa.models.dense_heads.PicoHead` is dropped. The head of a classifier gets mmpretrain's names.
    """
    heads = {name: tensor for name, tensor in state.items() if not name.startswith("backbone.")}
    if len(heads) == len(state):  # a classifier under its authors' names
        heads = {name: tensor for name, tensor in heads.items() if name.startswith(("head.", "head_dist."))}
    if _PICODET not in heads:
        return _rename_classifier_head(heads)
    keeps_head = not any(name.startswith(_OTHER_HEADS) for name in heads)
    renamed = {}
    for name, tensor in heads.items():
        is_neck = name.startswith("neck.")
        new = apply_rules(PADDLE_PAN if is_neck else PADDLE_HEAD, name) if is_neck or keeps_head else None
        if new is not None:
            renamed[new] = tensor
    if keeps_head:  # some releases compute the distances instead of saving them
        renamed.setdefault("bbox_head.integral.project", torch.arange(_REG_MAX + 1.0))
    return _with_counters(renamed)


def _rename_classifier_head(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename a head to ``head.*`` as in mmpretrain's ``LinearClsHead`` and ``mmlisa.MlpClsHead``; other names stay.

    LeViT averages the scores of two heads, each a batch norm and a linear layer. They are merged into one linear layer.
    """
    levit = [head for head in _LEVIT if f"{head}.linear.weight" in state and f"{head}.bn.running_var" in state]
    if levit:
        layers = [_fold({n.removeprefix(f"{head}."): t for n, t in state.items()}) for head in levit]
        weight, bias = (torch.stack(tensors).mean(0) for tensors in zip(*layers, strict=True))
        return {"head.fc.weight": weight, "head.fc.bias": bias}
    names = {name: apply_rules(HEAD, name) for name in state}
    return {new: state[name] for name, new in names.items() if isinstance(new, str)}


def _fold(head: Mapping[str, Tensor], eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of ``linear(bn(x))``, an evaluated network, as one linear layer."""
    scale = head["bn.weight"] / (head["bn.running_var"] + eps).sqrt()
    shift = head["bn.bias"] - head["bn.running_mean"] * scale
    return head["linear.weight"] * scale, head["linear.bias"] + head["linear.weight"] @ shift
