"""The vision transformers of DINOv2 and DINOv3 around any attention operator.

DINOv2: Oquab et al., "DINOv2: Learning Robust Visual Features without Supervision"; its registers: Darcet et al., "Vision
Transformers Need Registers". DINOv3: Siméoni et al., "DINOv3".
"""

from collections.abc import Mapping, Sequence
from math import isqrt, pi, prod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.attention import build_attention, with_rotary
from mmlisa.models.layers.blocks import LayerNorm, Mlp, stochastic_depth
from mmlisa.models.layers.grids import PositionsOnLoad
from mmlisa.models.layers.tokens import PatchEmbed
from mmlisa.models.published import DEIT_RULES, Network, Rules, TimmNames
from mmlisa.ops.context import no_autocast
from mmlisa.registry import MODELS

from .plain_vit import PlainViT

PERIOD = 100  # the rotary positions' longest one, in halves of the map's side


def rotary(x: Tensor, grid: Sequence[int]) -> Tensor:
    """Turn pairs of channels by angles that grow with the row and the column: ``[..., N, d] -> [..., N, d]``.

    The centres of the tokens have coordinates p from -1 to 1 on either axis, on a map of any size. With K = d / 4 periods
    T_k = 100^(k/K), the pair of channels (k, k + d / 2) is turned by 2 π p_y / T_k for k < K, and (K + k, K + k + d / 2) by
    2 π p_x / T_k. Prefix tokens, before those of the grid (H, W), are not turned. The angles are fp32 at least.
    """
    with no_autocast(x.device):
        prefix, count = x.shape[-2] - prod(grid), x.shape[-1] // 4
        wide = torch.promote_types(x.dtype, torch.float32)
        periods = PERIOD ** (torch.arange(count, dtype=wide, device=x.device) / count)
        angles = []  # [H, K] and [W, K]
        for size in grid:
            coordinates = (2 * torch.arange(size, dtype=wide, device=x.device) + 1) / size - 1
            angles.append(2 * pi * coordinates[:, None] / periods)
        down = angles[0][:, None].expand(*grid, count)
        right = angles[1][None].expand(*grid, count)
        angle = torch.cat([down, right], dim=-1).flatten(0, 1)  # [N, d / 2]
        cos, sin = angle.cos(), angle.sin()
        first, second = x[..., prefix:, :].chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
    return torch.cat([x[..., :prefix, :], turned], dim=-2)


class TokenEmbed(PatchEmbed):
    """A patch embedding behind a class token and registers: map -> ``[B, 1 + registers + N, C]``, grid of N patches.

    The map is padded with zeros to whole patches.
    """

    def __init__(self, in_channels: int, channels: int, side: int, registers: int) -> None:
        super().__init__(in_channels, channels, side, side, norm=nn.Identity())
        self.cls_token = nn.Parameter(torch.empty(1, 1, channels))
        self.reg_token = nn.Parameter(torch.empty(1, registers, channels)) if registers else None
        for tensor in (self.cls_token, self.reg_token):
            if tensor is not None:
                nn.init.trunc_normal_(tensor, std=0.02)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        x, grid = super().forward(x)
        x = self.add_positions(x, grid)
        prefix = [t.expand(len(x), -1, -1).to(x.dtype) for t in (self.cls_token, self.reg_token) if t is not None]
        return torch.cat([*prefix, x], dim=1), grid

    def add_positions(self, x: Tensor, grid: tuple[int, ...]) -> Tensor:
        """Add learned positions to the patches ``[B, N, C]``, if there are any."""
        return x


class PositionedTokenEmbed(PositionsOnLoad, TokenEmbed):
    """:class:`TokenEmbed` with learned positions of the patches, interpolated from the pretraining ``grid`` to the grid at hand.

    ``cls_token`` is the sum of the authors' class token and its position. Registers have no positions.
    """

    on_grid = ("position",)

    def __init__(
        self, in_channels: int, channels: int, side: int, registers: int, grid: Sequence[int], antialias: bool
    ) -> None:
        super().__init__(in_channels, channels, side, registers)
        self.grid, self.antialias = tuple(grid), antialias
        self.position = nn.Parameter(torch.empty(1, prod(grid), channels))
        nn.init.trunc_normal_(self.position, std=0.02)

    def add_positions(self, x: Tensor, grid: tuple[int, ...]) -> Tensor:
        return x + self.resize(self.position, grid).to(x.dtype)


class GatedMlp(nn.Module):
    """``fc2(SiLU(gate(x)) * fc1(x))``: ``[B, N, C] -> [B, N, C]`` (Shazeer, "GLU Variants Improve Transformer")."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(channels, hidden)
        self.fc1 = nn.Linear(channels, hidden)
        self.fc2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        return self.fc2(F.silu(self.gate(x)) * self.fc1(x))


class ScaledBlock(nn.Module):
    """``x + γ₁ attention(norm(x))``, then ``x + γ₂ MLP(norm(x))``: ``[B, N, C] -> [B, N, C]``, with stochastic depth.

    Args:
        scale: initial value of the layer scales γ₁ and γ₂, one number per channel (Touvron et al., "CaiT").
        eps: of the norms.
    """

    def __init__(
        self, channels: int, attention: nn.Module, mlp: nn.Module, *, scale: float, drop_path: float, eps: float
    ) -> None:
        super().__init__()
        self.norm1 = LayerNorm(channels, eps=eps)
        self.attn = attention
        self.gamma1 = nn.Parameter(torch.full((channels,), float(scale)))
        self.norm2 = LayerNorm(channels, eps=eps)
        self.mlp = mlp
        self.gamma2 = nn.Parameter(torch.full((channels,), float(scale)))
        self.drop_path = stochastic_depth(drop_path)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        # Under autocast, fp32 would double the memory.
        gamma1 = self.gamma1.to(x.dtype)
        gamma2 = self.gamma2.to(x.dtype)
        x = x + self.drop_path(gamma1 * self.attn(self.norm1(x), grid))
        return x + self.drop_path(gamma2 * self.mlp(self.norm2(x), grid))


class DINO(PlainViT):
    """Base of DINOv2 and DINOv3: a class token, registers, layer scales, and the last norm on every map.

    Args:
        attention_blocks: indices of the blocks that have the operator of ``attention``; negative ones count from the end. The
            others have the network's own. None for all.
        window: side of windows in tokens (Li et al., "ViTDet"). All blocks but those of ``global_blocks`` attend within windows
            and to the prefix tokens: ``CellAttention`` without cells, in the place of ``attention`` and ``attention_blocks``.
        global_blocks: indices of the blocks that keep the network's own attention beside ``window``.
    """

    own_attention: ClassVar[dict[str, Any]]
    _common: ClassVar[dict[str, Any]] = dict(mlp_ratio=4, layer_scale=1e-5, attention_blocks=None)
    no_decay = ("stem.position", "cls_token", "reg_token")
    classifier: ClassVar[dict[str, Any]] = dict(out_type="cls_token")

    def __init__(
        self,
        arch: str | dict[str, Any] | None = None,
        *,
        attention_blocks: Sequence[int] | None = None,
        window: int | None = None,
        global_blocks: Sequence[int] = (),
        **options: Any,
    ) -> None:
        if window is not None:
            if attention_blocks is not None or "attention" in options:
                raise UserError(
                    f"window={window} decides the attention; give attention and attention_blocks, or window"
                )
            depth = self.resolve_arch(arch)["depth"]
            attention_blocks = sorted(set(range(depth)) - set(_blocks("global_blocks", global_blocks, depth)))
            options["attention"] = dict(type="CellAttention", window=window, cells=0)
        elif global_blocks:
            raise UserError(
                f"global_blocks={global_blocks!r} are blocks without windows, and there are none; give window="
            )
        if attention_blocks is not None:
            arch = arch if isinstance(arch, dict) else {"base": arch or self.default_arch}
            arch = {**arch, "attention_blocks": attention_blocks}
        super().__init__(arch, **options)
        self.num_extra_tokens = 1 + self.arch["registers"]

    @classmethod
    def check_arch(cls, arch: dict[str, Any]) -> None:
        super().check_arch(arch)
        if arch["attention_blocks"] is not None:
            arch["attention_blocks"] = _blocks("attention_blocks", arch["attention_blocks"], arch["depth"])

    def build_block(self, stage: int, index: int, drop_path: float, grid: tuple[int, ...]) -> nn.Module:
        arch, blocks = self.arch, self.arch["attention_blocks"]
        operator = self.attention if blocks is None or stage in blocks else self.own_attention
        attention = self.build_operator(operator, grid)
        mlp = self.build_mlp(arch["channels"], int(arch["channels"] * arch["mlp_ratio"]), attention)
        return ScaledBlock(
            arch["channels"], attention, mlp, scale=arch["layer_scale"], drop_path=drop_path, eps=self.eps
        )

    def build_operator(self, operator: dict[str, Any], grid: tuple[int, ...]) -> nn.Module:
        """Build the attention of a block."""
        return build_attention(operator, self.arch["channels"], self.arch["num_heads"], grid)

    def build_mlp(self, channels: int, hidden: int, attention: nn.Module) -> nn.Module:
        """Build the MLP of a block behind ``attention``."""
        return Mlp(channels, hidden, getattr(attention, "mlp_conv", None))


def _blocks(name: str, indices: Any, depth: int) -> list[int]:
    """Return indices of blocks in order, counted from the start; others than a list of indices are a UserError."""
    if not isinstance(indices, list | tuple) or not all(-depth <= i < depth for i in indices):
        raise UserError(f"{name}={indices!r}; it must be a list of indices of the {depth} blocks")
    return sorted({i % depth for i in indices})


def joined(state: Mapping[str, Tensor], names: Sequence[str], joint: str) -> dict[str, Tensor]:
    """Join the projections ``names`` of query, key and value to ``joint``; a missing key bias becomes zeros.

    Names are parts before ``.weight`` and ``.bias``.
    """
    query, key, value = names
    joint_state = {}
    for name, tensor in state.items():
        if f".{query}." in name:
            key_name = name.replace(f".{query}.", f".{key}.")
            value_name = name.replace(f".{query}.", f".{value}.")
            parts = {name: tensor, key_name: state.get(key_name), value_name: state.get(value_name)}
            if parts[key_name] is None and name.endswith(".bias"):
                parts[key_name] = torch.zeros_like(tensor)
            if missing := [part for part, weight in parts.items() if weight is None]:
                raise UserError(f"the file has {name}, but no {missing[0]}; it is not a whole network")
            joint_state[name.replace(f".{query}.", f".{joint}.")] = torch.cat([*parts.values()])
        elif not any(f".{each}." in name for each in (key, value)):
            joint_state[name] = tensor
    return joint_state


def _network(name: str, *keys: str, **settings: Any) -> Network:
    """Describe a file of the networks themselves, which is refused if it lacks or has more of what the settings decide."""
    needed = ("stem.proj.", "stem.reg_token", "gamma", ".mlp.gate.")
    return Network(name, keys, is_ours=True, needed=needed, **settings)


_SCALES: Rules = (
    (r"^(?:register_tokens|storage_tokens|reg_token)$", "stem.reg_token"),
    (r"\.(?:ls|gamma_|layer_scale)(\d)(?:\.gamma|\.lambda1)?$", r".gamma\1"),
)
_HUGGING_FACE: Rules = (
    (r"^embeddings\.patch_embeddings\.(?:projection\.)?", "patch_embed.proj."),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.", ""),
    (r"^(?:encoder\.|model\.)?layer\.", "blocks."),
    (r"^layernorm\.", "norm."),
    (r"\.attention\.attention\.", ".attn."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.attention\.o_proj\.", ".attn.proj."),
    (r"\.attention\.", ".attn."),
    (r"\.mlp\.up_proj\.", ".mlp.fc1."),
    (r"\.mlp\.gate_proj\.", ".mlp.gate."),
    (r"\.mlp\.down_proj\.", ".mlp.fc2."),
)


def add_class_position(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add the position of the class token to it and leave it out of the positions, as timm does in networks with registers."""
    prefix = "embeddings." if "embeddings.cls_token" in state else ""
    token, table = f"{prefix}cls_token", "embeddings.position_embeddings" if prefix else "pos_embed"
    state = dict(state)
    if _has_class_position(state[table]):
        state[token], state[table] = state[token] + state[table][:, :1], state[table][:, 1:]
    return joined(state, ("query", "key", "value"), "qkv")


def _in_hugging_faces(prefix: str) -> Network:
    """Describe DINOv2 under Hugging Face's names, which have a prefix in a classifier."""

    def prepare(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return add_class_position({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})

    names = ("embeddings.cls_token", "embeddings.position_embeddings", "encoder.layer.0.layer_scale1.lambda1")
    keys = [f"{prefix}{name}" for name in names]
    return _network(
        f"DINOv2, Hugging Face's names{prefix and ' of a classifier'}", *keys, prepare=prepare, rules=_HUGGING_FACE
    )


def _has_class_position(table: Tensor) -> bool:
    return isqrt(table.shape[1] - 1) ** 2 == table.shape[1] - 1


def _is_dinov2(state: Mapping[str, Tensor]) -> bool:
    """DeiT III has the names of DINOv2, but neither registers nor a position of the class token."""
    return "reg_token" in state or _has_class_position(state["pos_embed"])


@MODELS.register_module()
class DINOv2(DINO):
    """DINOv2's ViT-S, ViT-B and ViT-L with patches of 14 pixels, with four registers in ``*-reg``.

    Positions of another grid are interpolated bicubically: without antialiasing, and with it in the networks with registers, as
    in the authors' code for either (``antialias``).
    """

    default_arch = "small"
    own_attention: ClassVar[dict[str, Any]] = dict(type="SoftmaxAttention")
    _vit: ClassVar[dict[str, Any]] = dict(
        DINO._common, patch_size=14, image_size=518, registers=0, antialias=False, attention=own_attention
    )
    _sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(_vit, depth=12, channels=384, num_heads=6),
        "base": dict(_vit, depth=12, channels=768, num_heads=12),
        "large": dict(_vit, depth=24, channels=1024, num_heads=16),
    }
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        **_sizes,
        "small-reg": dict(_sizes["small"], registers=4, antialias=True),
        "base-reg": dict(_sizes["base"], registers=4, antialias=True),
        "large-reg": dict(_sizes["large"], registers=4, antialias=True),
    }

    def build_stem(self) -> nn.Module:
        arch = self.arch
        sizes = (self.in_channels, arch["channels"], arch["patch_size"], arch["registers"])
        return PositionedTokenEmbed(*sizes, self.stage_grid(0), arch["antialias"])

    # Names in timm and published weights.
    _names: ClassVar[dict[str, str]] = {
        "s14": "small",
        "b14": "base",
        "l14": "large",
        "s14_reg4": "small-reg",
        "b14_reg4": "base-reg",
        "l14_reg4": "large-reg",
    }
    timm = (TimmNames("dinov2_{}", _names, crop_pct=1.0),)
    _keys = ("cls_token", "pos_embed", "patch_embed.proj.weight")
    published: ClassVar[dict[Network, Rules]] = dict.fromkeys(
        (
            _network(
                "DINOv2",
                *(*_keys, "blocks.0.ls1.gamma", "blocks.0.attn.qkv.weight"),
                prepare=add_class_position,
                accepts=_is_dinov2,
            ),
            _network(
                "DINOv2, in chunks of blocks",
                *(*_keys, "blocks.0.0.ls1.gamma", "blocks.0.0.attn.qkv.weight"),
                prepare=add_class_position,
                accepts=_is_dinov2,
                rules=((r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),),
            ),
            *(_in_hugging_faces(prefix) for prefix in ("", "dinov2.", "dinov2_with_registers.")),
        ),
        (*_SCALES, *DEIT_RULES),
    )


def mask_key_bias(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Write the bias of query and value as one of the joint projection, with zeros for the keys, and for all if there is none."""
    state = joined(state, ("q_proj", "k_proj", "v_proj"), "qkv")
    for weight in [name for name in state if name.endswith(".qkv.weight")]:
        block, bias = weight.removesuffix("qkv.weight"), weight.replace(".weight", ".bias")
        parts = (state.pop(f"{block}q_bias", None), state.pop(f"{block}v_bias", None))
        zeros = state[weight].new_zeros(len(state[weight]) // 3)
        query, value = (zeros if part is None else part for part in parts)
        if bias in state:
            query, _, value = state[bias].chunk(3)
        state[bias] = torch.cat([query, zeros, value])
        state.pop(f"{bias}_mask", None)
    return state


@MODELS.register_module()
class DINOv3(DINO):
    """DINOv3's ViT-S, ViT-S+, ViT-B and ViT-L with patches of 16 pixels, four registers and rotary positions.

    The rotary positions turn queries and keys of every operator that takes them; one that does not is a UserError. ViT-S+ has
    gated MLPs (``gated``).
    """

    default_arch = "small"
    eps = 1e-5
    own_attention: ClassVar[dict[str, Any]] = dict(type="SoftmaxAttention", key_bias=False)
    _vit: ClassVar[dict[str, Any]] = dict(
        DINO._common, patch_size=16, image_size=256, registers=4, gated=False, attention=own_attention
    )
    arch_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "small": dict(_vit, depth=12, channels=384, num_heads=6),
        "small-plus": dict(_vit, depth=12, channels=384, num_heads=6, gated=True),
        "base": dict(_vit, depth=12, channels=768, num_heads=12),
        "large": dict(_vit, depth=24, channels=1024, num_heads=16),
    }

    @classmethod
    def check_arch(cls, arch: dict[str, Any]) -> None:
        super().check_arch(arch)
        if arch["channels"] % (4 * arch["num_heads"]):
            raise UserError(f"arch: channels={arch['channels']}; rotary positions need a multiple of 4 for each head")

    def build_stem(self) -> nn.Module:
        arch = self.arch
        return TokenEmbed(self.in_channels, arch["channels"], arch["patch_size"], arch["registers"])

    def build_operator(self, operator: dict[str, Any], grid: tuple[int, ...]) -> nn.Module:
        return with_rotary(super().build_operator(operator, grid), rotary)

    def build_mlp(self, channels: int, hidden: int, attention: nn.Module) -> nn.Module:
        return GatedMlp(channels, hidden) if self.arch["gated"] else super().build_mlp(channels, hidden, attention)

    # Names in timm and published weights.
    _names: ClassVar[dict[str, str]] = {"s16": "small", "s16plus": "small-plus", "b16": "base", "l16": "large"}
    timm = (TimmNames("dinov3_{}", _names, crop_pct=1.0),)
    published: ClassVar[dict[Network, Rules]] = dict.fromkeys(
        (
            _network(
                "DINOv3, timm's names",
                *("cls_token", "reg_token", "blocks.0.gamma_1", "blocks.0.attn.qkv.weight"),
                prepare=mask_key_bias,
                accepts=lambda state: "pos_embed" not in state,
            ),
            _network(
                "DINOv3",
                *("cls_token", "storage_tokens", "blocks.0.ls1.gamma", "blocks.0.attn.qkv.weight"),
                prepare=mask_key_bias,
            ),
            _network(
                "DINOv3, Hugging Face's names",
                *("embeddings.cls_token", "embeddings.register_tokens", "layer.0.attention.q_proj.weight"),
                prepare=mask_key_bias,
                rules=_HUGGING_FACE,
            ),
        ),
        (
            (r"^rope_|^local_cls_norm\.", None),  # the frequencies, and a norm of the pretraining
            (r"\.mlp\.(?:fc1_g|w1)\.", ".mlp.gate."),
            (r"\.mlp\.(?:fc1_x|w2)\.", ".mlp.fc1."),
            (r"\.mlp\.w3\.", ".mlp.fc2."),
            *_SCALES,
            *DEIT_RULES,
        ),
    )
