"""Any backbone from published weights: ``init_cfg=dict(type='mmlisa.PublishedWeights', source='timm:…')``."""

from difflib import get_close_matches

import timm
import torch
from mmengine.logging import print_log
from mmengine.model import update_init_info
from torch import Tensor, nn

from mmlisa.checkpoints import CheckpointError, fetch_checkpoint
from mmlisa.registry import WEIGHT_INITIALIZERS

from .carrying import Carried, carry_over
from .conversion import unwrap
from .families import FAMILIES


@WEIGHT_INITIALIZERS.register_module()
class PublishedWeights:
    """Starts a backbone from the published weights of its host, or of a related network.

    What fits by name and shape is loaded, with position tables interpolated; the log says what was carried over, what starts
    fresh, and why.

    Args:
        source: ``'timm:NAME'``, a model that timm has weights for, which it downloads into its own cache; or a file or an
            address, as :func:`mmlisa.checkpoints.fetch_checkpoint` takes it. Paddle's ``.pdparams`` are read, too.
        ema: take the file's averaged weights.
        min_carried: share of the backbone's parameters below which the source is refused.

    Raises:
        ValueError: an unknown source, or one that does not fit the backbone; names the closest known ones.
        ConnectionError: the weights cannot be downloaded.
    """

    def __init__(self, source: str, ema: bool = False, min_carried: float = 0.0) -> None:
        self.source, self.ema, self.min_carried = source, ema, min_carried

    def __call__(self, module: nn.Module) -> None:
        carried = self.carry_over(module)
        if not carried.state_dict or carried.share < self.min_carried:
            raise ValueError(f"source={self.source!r} does not fit {type(module).__name__}: {carried.report()}")
        module.load_state_dict(carried.state_dict, strict=False)
        print_log(f"{type(module).__name__} starts from {self.source}: {carried.report()}", logger="current")
        if hasattr(module, "_params_init_info"):
            update_init_info(module, f"PublishedWeights: from {self.source}")

    def carry_over(self, module: nn.Module) -> Carried:
        """What ``module`` would take over; loads nothing."""
        return carry_over(module, read_source(self.source, self.ema))


def read_source(source: str, ema: bool = False) -> dict[str, Tensor]:
    """The weights of a source, by its own names; of a detector or a classifier those of the backbone.

    Raises:
        ValueError, ConnectionError: see :class:`PublishedWeights`.
    """
    state = (
        _from_timm(source.removeprefix("timm:"))
        if source.startswith("timm:")
        else unwrap(fetch_checkpoint(source), ema)
    )
    backbone = {name.removeprefix("backbone."): t for name, t in state.items() if name.startswith("backbone.")}
    state = backbone or state
    for name, tensor in state.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(f"{source}: {name} holds values that are not finite")
    return state


def known_sources() -> list[str]:
    """The ``timm:`` sources whose family a backbone here can take."""
    starts = tuple(start for family in FAMILIES for start in family.timm)
    return [f"timm:{name}" for name in timm.list_models(pretrained=True) if name.startswith(starts)]


def _from_timm(name: str) -> dict[str, Tensor]:
    near = get_close_matches(f"timm:{name}", known_sources(), n=3, cutoff=0.4)
    if not timm.is_model_pretrained(name):
        raise ValueError(f"source='timm:{name}': timm has no such weights; the closest are {', '.join(near) or 'none'}")
    try:
        model = timm.create_model(name, pretrained=True)
    # Whatever the network throws: the hub's client has a dozen kinds of errors.
    except Exception as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        raise ConnectionError(
            f"source='timm:{name}': its weights could not be loaded ({reason}). "
            f"Without a network, download them elsewhere and give source=FILE; the closest sources are {', '.join(near)}"
        ) from error
    return {key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in model.state_dict().items()}


def closest_backbone(state: dict[str, Tensor], backbones: dict[str, type[nn.Module]]) -> tuple[str, str, Carried]:
    """The backbone and arch that take the most of ``state`` over: what a converted file is for.

    Raises:
        ValueError: an unknown family.
    """
    best = None
    for kind, backbone in backbones.items():
        for arch in backbone.arch_settings:
            with torch.device("meta"):
                module = backbone(arch)
            carried = carry_over(module, state)
            # Of equal shares the one that leaves less unused.
            if best is None or (carried.share, -len(carried.dropped)) > (best[2].share, -len(best[2].dropped)):
                best = kind, arch, carried
    return best
