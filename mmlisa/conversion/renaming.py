"""The published networks that backbones list in ``Backbone.published``, and the names of their weights in OpenMMLab and here."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models import backbones
from mmlisa.models.backbones.base import Backbone
from mmlisa.models.published import PADDLE_NORM, Names, Network, Rules


def known_networks() -> dict[Network, list[type[Backbone]]]:
    """Return all networks, each with the backbones of this package that take its weights.

    Networks of this package come first, because their files have the entries of their base networks too.
    """
    hosts: dict[Network, list[type[Backbone]]] = {}
    for host in (getattr(backbones, name) for name in backbones.__all__):
        for network in host.published:
            hosts.setdefault(network, []).append(host)
    return dict(sorted(hosts.items(), key=lambda item: not item[0].is_ours))


def find_network(state: Mapping[str, Any], backbone: type[nn.Module] | None = None) -> Network | None:
    """Return the network that ``state`` holds: one that ``backbone`` lists, or a known one, or None."""
    networks = (*getattr(backbone, "published", ()), *known_networks())
    return next((network for network in networks if network.is_in(state)), None)


def recognise(state: Mapping[str, Any], backbone: type[nn.Module] | None = None) -> Network:
    """Return the network that ``state`` holds, as :func:`find_network`, or raise UserError."""
    if (network := find_network(state, backbone)) is not None:
        return network
    known = ", ".join(dict.fromkeys(network.name.split(",")[0] for network in known_networks()))
    raise UserError(
        f"the weights ({', '.join(sorted(state)[:5])}, …) belong to none of the known networks, {known}. A file of this "
        "package's own training needs no conversion: init_cfg=dict(type='Pretrained', checkpoint=…, prefix='backbone.')"
    )


def rename(
    state: Mapping[str, Tensor], network: Network, backbone: type[nn.Module]
) -> tuple[dict[str, Tensor], dict[str, str], list[str]]:
    """Rename a published network's weights, without a prefix, for one of our backbones; UserError if it takes none of them.

    Returns:
        The weights under our names, the name in the file for each of them, and the names in the file that the rules drop.
    """
    if network not in getattr(backbone, "published", ()):
        hosts = ", ".join(host.__name__ for host in known_networks().get(network, ()))
        raise UserError(f"{network.name} weights have no place in {backbone.__name__}; they fit {hosts}")
    rules = (*network.rules, *backbone.published[network])
    renamed, origins, dropped = {}, {}, []
    for name, tensor in (network.prepare(state) if network.prepare else state).items():
        names = apply_rules(rules, name)
        names = names if isinstance(names, tuple) else (names,)
        if not any(names):
            dropped.append(name)
        for new, chunk in zip(names, tensor.chunk(len(names)) if len(names) > 1 else (tensor,), strict=True):
            if new is not None:
                renamed[new], origins[new] = chunk, name
    return _with_counters(renamed), origins, dropped


def _with_counters(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add the numbers of batches, which Paddle's batch norms do not count."""
    means = [name for name in state if name.endswith("running_mean")]
    return {name.replace("running_mean", "num_batches_tracked"): torch.tensor(0) for name in means} | state


def apply_rules(rules: Rules, name: str) -> Names:
    """Return the new name after all matching rules in turn; ``{1+1}`` in it is a sum. None drops the weight."""
    for pattern, new in rules:
        if not re.search(pattern, name):
            continue
        if new is None:
            return None
        if isinstance(new, tuple):
            later = rules[rules.index((pattern, new)) + 1 :]
            return tuple(text and apply_rules(later, re.sub(pattern, text, name)) for text in new)
        name = re.sub(pattern, new, name)
        name = re.sub(r"\{(\d+)([+-]\d+)\}", lambda match: str(int(match[1]) + int(match[2])), name)
    return name


# A classifier's head, in the names of mmpretrain's LinearClsHead and mmlisa.MlpClsHead.
_HEAD: Rules = (
    (r"^head\.(?:fc\.|layers\.head\.)?(weight|bias)$", r"head.fc.\1"),  # mmpretrain's ViT has layers
    (r"^head(\.(linear|bn)|_dist)\.", None),  # LeViT averages two heads with batch norms
    (r"^head\.norm\.", "head.pre_norm."),  # CAFormer's, and its hidden layer
    (r"^head\.fc\.(fc1|norm|fc2)\.", r"head.\1."),
)
_PADDLE_PAN: Rules = (  # CSP-PAN and LC-PAN
    (r"^neck\.conv_t\.convs\.", "neck.transforms."),
    (r"^neck\.top_down_blocks\.", "neck.top_down."),
    (r"^neck\.bottom_up_blocks\.", "neck.bottom_up."),
    (r"^neck\.first_top_conv\.", "neck.top.0."),
    (r"^neck\.second_top_conv\.", "neck.top.1."),
    (r"\.main_conv\.", ".main.0."),
    (r"\.blocks\.0\.conv1\.", ".main.1."),
    (r"\.blocks\.0\.conv2\.", ".main.2."),
    (r"\.short_conv\.", ".short."),
    (r"\.final_conv\.", ".merge."),
    (r"\.(?:dw_conv\.conv|dwconv)\.", ".depthwise_conv.conv."),
    (r"\.(?:dw_conv\.bn|bn1)\.", ".depthwise_conv.bn."),
    (r"\.(?:pw_conv\.conv|pwconv)\.", ".pointwise_conv.conv."),
    (r"\.(?:pw_conv\.bn|bn2)\.", ".pointwise_conv.bn."),
    *PADDLE_NORM,
)
_PADDLE_HEAD: Rules = (  # PicoHead with shared towers, of release 2021.10
    (r"^head\.p\d_feat\.scale_reg$", None),  # scales of the class it inherits from, never applied
    (r"^head\.distribution_project\.", "bbox_head.integral."),
    (r"^head\.conv_feat\.cls_conv_(d|p)w(\d+)\.(\d+)\.", r"bbox_head.towers.\2.\3.\1w."),
    (r"^head\.head_cls(\d+)\.", r"bbox_head.predictors.\1."),
    (r"\.dw\.", ".depthwise_conv."),
    (r"\.pw\.", ".pointwise_conv."),
    (r"\.norm\.", ".bn."),
    *PADDLE_NORM,
)
# Entries found only in other heads: towers for the boxes, or PicoHeadV2's attention and alignment (release 2022.03).
_OTHER_HEADS = ("head.conv_feat.reg_conv_", "head.head_reg", "head.conv_feat.se.", "head.cls_align.")
_REG_MAX = 7  # largest distance in all published PicoDets


def rename_heads(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the necks and heads of a whole model under the names of the libraries and of this package.

    OpenMMLab's and the authors' detectors and segmentors have these names already. Of PaddleDetection's PicoDet, a head other
    than :class:`mmlisa.models.dense_heads.PicoHead` is dropped, and of LeViT both heads.
    """
    heads = {name: tensor for name, tensor in state.items() if not name.startswith("backbone.")}
    if len(heads) == len(state):  # a classifier under its authors' names
        heads = {name: tensor for name, tensor in heads.items() if name.startswith("head.")}
    is_picodet = "neck.conv_t.convs.0.conv.weight" in heads
    drops_head = is_picodet and any(name.startswith(_OTHER_HEADS) for name in heads)
    renamed = {}
    for name, tensor in heads.items():
        is_neck = name.startswith("neck.")
        rules = (_PADDLE_PAN if is_neck else _PADDLE_HEAD) if is_picodet else _HEAD
        new = None if drops_head and not is_neck else apply_rules(rules, name)
        if isinstance(new, str):
            renamed[new] = tensor
    if not is_picodet:
        return renamed
    if not drops_head:  # some releases compute the distances instead of saving them
        renamed.setdefault("bbox_head.integral.project", torch.arange(_REG_MAX + 1.0))
    return _with_counters(renamed)
