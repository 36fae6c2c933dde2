"""The published networks whose weights this package converts: those that its backbones list in ``Backbone.published``."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from mmlisa.errors import UserError
from mmlisa.models import backbones
from mmlisa.models.backbones.base import Backbone
from mmlisa.models.published import Network


def hosts_of(network: Network) -> list[type[Backbone]]:
    """Return the backbones of this package that take weights of ``network``."""
    hosts = (getattr(backbones, name) for name in backbones.__all__)
    return [host for host in hosts if network in host.published]


def known_networks() -> list[Network]:
    """Return all networks. Those of this package come first, because their files have the entries of their base networks too."""
    hosts = (getattr(backbones, name) for name in backbones.__all__)
    networks = dict.fromkeys(network for host in hosts for network in host.published)
    return sorted(networks, key=lambda network: not network.is_ours)


def is_known(state: Mapping[str, Any], backbone: type[nn.Module] | None = None) -> bool:
    """Return True if ``state`` holds a network that :func:`recognise` knows."""
    return _find(state, backbone) is not None


def _find(state: Mapping[str, Any], backbone: type[nn.Module] | None) -> Network | None:
    networks = (*getattr(backbone, "published", ()), *known_networks())
    return next((network for network in networks if network.is_in(state)), None)


def recognise(state: Mapping[str, Any], backbone: type[nn.Module] | None = None) -> Network:
    """Return the network that ``state`` holds: one that ``backbone`` lists, or a known one, or raise UserError."""
    if (network := _find(state, backbone)) is not None:
        return network
    known = ", ".join(dict.fromkeys(network.name.split(",")[0] for network in known_networks()))
    raise UserError(
        f"the weights ({', '.join(sorted(state)[:5])}, …) belong to none of the known networks, {known}. A file of this "
        "package's own training needs no conversion: init_cfg=dict(type='Pretrained', checkpoint=…, prefix='backbone.')"
    )
