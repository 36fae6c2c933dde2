"""The official FLatten networks as functions of their state dicts, written from the paper and their checkpoints' layout.

Slow and plain on purpose, and independent of the package: square maps at the pretraining resolution only, one head at a time,
one window at a time where there are windows.
"""

import math

import torch
import torch.nn.functional as F

# Depths, widths and heads of the smallest model of each family.
SWIN_TINY = dict(depths=(2, 2, 6, 2), heads=(3, 6, 12, 24), dims=(96, 192, 384, 768), window=7)
PVT_TINY = dict(depths=(2, 2, 2, 2), heads=(1, 2, 5, 8), dims=(64, 128, 320, 512), mlp=(8, 8, 4, 4))
PVTV2_B0 = dict(depths=(2, 2, 2, 2), heads=(1, 2, 5, 8), dims=(32, 64, 160, 256), mlp=(8, 8, 4, 4))
CSWIN_TINY = dict(depths=(2, 4, 18, 1), heads=(2, 4, 8, 16), dims=(64, 128, 256, 512), splits=(1, 2, 7, 7))


class State:
    """A state dict below a prefix."""

    def __init__(self, state, prefix=""):
        self.state, self.prefix = state, prefix

    def __truediv__(self, name):
        return State(self.state, f"{self.prefix}{name}.")

    def __getitem__(self, name):
        return self.state[self.prefix + name]

    def linear(self, x, name):
        return F.linear(x, self[f"{name}.weight"], self.state.get(f"{self.prefix}{name}.bias"))

    def norm(self, x, name, eps):
        return F.layer_norm(x, x.shape[-1:], self[f"{name}.weight"], self[f"{name}.bias"], eps)

    def conv(self, x, name, **options):
        return F.conv2d(x, self[f"{name}.weight"], self[f"{name}.bias"], **options)


def tokens_to_image(x):
    batch, n, channels = x.shape
    side = math.isqrt(n)
    return x.permute(0, 2, 1).reshape(batch, channels, side, side)


def image_to_tokens(x):
    return x.reshape(*x.shape[:2], -1).permute(0, 2, 1)


def focused(q, k, v, s, heads, p=3):
    """Section 4 of the paper, from projected q, k, v ``[B, N, C]``; ``s`` holds dwc, scale and positional_encoding."""
    k = k + s["positional_encoding"]
    divisor = torch.log1p(torch.exp(s["scale"]))
    features = []
    for t in (q, k):
        t = (torch.clamp(t, min=0) + 1e-6) / divisor
        length = t.pow(2).sum(-1, keepdim=True).sqrt()
        t = t * t * t if p == 3 else t.pow(p)
        features.append(t / t.pow(2).sum(-1, keepdim=True).sqrt() * length)
    outputs = []
    n, width = q.shape[1], q.shape[2] // heads
    for h in range(heads):
        qh, kh, vh = (t[..., h * width : (h + 1) * width] for t in (*features, v))
        z = 1 / ((qh * kh.mean(1, keepdim=True)).sum(-1, keepdim=True) + 1e-6)
        kv = torch.einsum("bnc,bnd->bcd", kh, vh) / n
        local = s.conv(tokens_to_image(vh), "dwc", padding=s["dwc.weight"].shape[-1] // 2, groups=width)
        outputs.append(torch.einsum("bnc,bcd->bnd", qh, kv) * z + image_to_tokens(local))
    return torch.cat(outputs, -1)


def softmax_heads(q, k, v, heads, bias=None):
    """``[B, n, C]`` per head; ``bias: [h, n, n]``."""
    width = q.shape[-1] // heads
    outputs = []
    for h in range(heads):
        qh, kh, vh = (t[..., h * width : (h + 1) * width] for t in (q, k, v))
        logits = qh @ kh.transpose(1, 2) / math.sqrt(width)
        outputs.append((logits + bias[h] if bias is not None else logits).softmax(-1) @ vh)
    return torch.cat(outputs, -1)


def perceptron(x, s, conv=False):
    x = s.linear(x, "fc1")
    if conv:
        x = image_to_tokens(s.conv(tokens_to_image(x), "dwconv.dwconv", padding=1, groups=x.shape[-1]))
    return s.linear(F.gelu(x), "fc2")


def swin_windows(x, s, heads, window, shift):
    """Swin's shifted window attention on ``[B, N, C]``, window by window."""
    batch, n, channels = x.shape
    side = math.isqrt(n)
    index = torch.empty(window * window, window * window, dtype=torch.long)
    for a in range(window * window):
        for b in range(window * window):
            dy, dx = a // window - b // window + window - 1, a % window - b % window + window - 1
            index[a, b] = dy * (2 * window - 1) + dx
    bias = s["relative_position_bias_table"][index].permute(2, 0, 1)
    x = x.reshape(batch, side, side, channels)
    region = torch.zeros(side, side)
    if shift:
        x = torch.roll(x, (-shift, -shift), (1, 2))
        cuts = [slice(0, side - window), slice(side - window, side - shift), slice(side - shift, side)]
        for i, a in enumerate(cuts):
            for j, b in enumerate(cuts):
                region[a, b] = 3 * i + j
    out = torch.empty_like(x)
    for top in range(0, side, window):
        for left in range(0, side, window):
            here = (slice(top, top + window), slice(left, left + window))
            block = x[(slice(None), *here)].reshape(batch, -1, channels)
            q, k, v = s.linear(block, "qkv").split(channels, -1)
            r = region[here].reshape(-1)
            mask = (r[:, None] != r[None, :]).to(x.dtype) * -100
            out[(slice(None), *here)] = softmax_heads(q, k, v, heads, bias + mask).reshape(
                batch, window, window, channels
            )
    if shift:
        out = torch.roll(out, (shift, shift), (1, 2))
    return s.linear(out.reshape(batch, n, channels), "proj")


def swin(image, state, *, depths, heads, dims, window, linear_stages=2):
    s = State(state)
    x = s.norm(image_to_tokens(s.conv(image, "patch_embed.proj", stride=4)), "patch_embed.norm", 1e-5)
    for i, depth in enumerate(depths):
        for j in range(depth):
            b = s / f"layers.{i}.blocks.{j}"
            y = b.norm(x, "norm1", 1e-5)
            if i < linear_stages:
                q, k, v = (b / "attn").linear(y, "qkv").split(dims[i], -1)
                y = (b / "attn").linear(focused(q, k, v, b / "attn", heads[i]), "proj")
            else:
                shift = window // 2 if j % 2 and math.isqrt(y.shape[1]) > window else 0
                y = swin_windows(y, b / "attn", heads[i], window, shift)
            x = x + y
            x = x + perceptron(b.norm(x, "norm2", 1e-5), b / "mlp")
        if i < 3:
            side = math.isqrt(x.shape[1])
            m = x.reshape(x.shape[0], side, side, -1)
            m = torch.cat([m[:, 0::2, 0::2], m[:, 1::2, 0::2], m[:, 0::2, 1::2], m[:, 1::2, 1::2]], -1)
            d = s / f"layers.{i}.downsample"
            x = d.linear(d.norm(m.reshape(x.shape[0], -1, m.shape[-1]), "norm", 1e-5), "reduction")
    return s.linear(s.norm(x, "norm", 1e-5).mean(1), "head")


def pvt(image, state, *, depths, heads, dims, mlp: tuple, second_version: bool):
    s, x = State(state), image
    for i, depth in enumerate(depths):
        stride = 2 if i else 4
        kernel = dict(stride=stride, padding=(1 if i else 3)) if second_version else dict(stride=stride)
        x = s.conv(x, f"patch_embed{i + 1}.proj", **kernel)
        x = s.norm(image_to_tokens(x), f"patch_embed{i + 1}.norm", 1e-5)
        if not second_version:
            x = x + s[f"pos_embed{i + 1}"]
        for j in range(depth):
            b = s / f"block{i + 1}.{j}"
            y = b.norm(x, "norm1", 1e-6)
            q = b.linear(y, "attn.q")
            k, v = b.linear(y, "attn.kv").split(dims[i], -1)
            x = x + b.linear(focused(q, k, v, b / "attn", heads[i]), "attn.proj")
            x = x + perceptron(b.norm(x, "norm2", 1e-6), b / "mlp", conv=second_version)
        if second_version:
            x = s.norm(x, f"norm{i + 1}", 1e-6)
        x = tokens_to_image(x)
    return s.linear(image_to_tokens(x).mean(1), "head")


def stripes(q, k, v, s, heads, height, width):
    """Attention and LePE within windows of height x width of ``[B, N, c]``."""
    batch, n, channels = q.shape
    side = math.isqrt(n)
    out = torch.empty(batch, side, side, channels, dtype=q.dtype)
    for top in range(0, side, height):
        for left in range(0, side, width):
            here = (slice(None), slice(top, top + height), slice(left, left + width))
            block = [t.reshape(batch, side, side, channels)[here] for t in (q, k, v)]
            y = softmax_heads(*(t.reshape(batch, -1, channels) for t in block), heads).reshape(block[0].shape)
            lepe = s.conv(block[2].permute(0, 3, 1, 2), "get_v", padding=1, groups=channels).permute(0, 2, 3, 1)
            out[here] = y + lepe
    return out.reshape(batch, n, channels)


def cswin(image, state, *, depths, heads, dims, splits, linear_stages=2):
    s = State(state)
    x = s.conv(image, "stage1_conv_embed.0", stride=4, padding=2)
    x = s.norm(image_to_tokens(x), "stage1_conv_embed.2", 1e-5)
    for i, depth in enumerate(depths):
        for j in range(depth):
            b, c = s / f"stage{i + 1}.{j}", dims[i]
            q, k, v = b.linear(b.norm(x, "norm1", 1e-5), "qkv").split(c, -1)
            side = math.isqrt(x.shape[1])
            a = [b / f"attns.{branch}" for branch in (0, 1)]
            if i < linear_stages:
                lepe = a[0].conv(tokens_to_image(v), "get_v", padding=1, groups=c)
                y = focused(q, k, v, a[0], heads[i]) + image_to_tokens(lepe)
            elif side == splits[i]:
                y = stripes(q, k, v, a[0], heads[i], side, side)
            else:
                first, second = ([t[..., cut] for t in (q, k, v)] for cut in (slice(0, c // 2), slice(c // 2, c)))
                y = torch.cat(
                    [
                        stripes(*first, a[0], heads[i] // 2, side, splits[i]),
                        stripes(*second, a[1], heads[i] // 2, splits[i], side),
                    ],
                    -1,
                )
            x = x + b.linear(y, "proj")
            x = x + perceptron(b.norm(x, "norm2", 1e-5), b / "mlp")
        if i < 3:
            m = s / f"merge{i + 1}"
            x = m.norm(image_to_tokens(m.conv(tokens_to_image(x), "conv", stride=2, padding=1)), "norm", 1e-5)
    return s.linear(s.norm(x, "norm", 1e-5).mean(1), "head")


def layout(family, *, depths, heads, dims, linear_stages=2, grids=(56, 28, 14, 7), **options):
    """Names and shapes of an official state dict."""
    shapes = {}

    def add(prefix, **tensors):
        for name, shape in tensors.items():
            shapes[f"{prefix}.{name}"] = shape

    def dense(prefix, *weight, bias=True):
        add(prefix, weight=weight)
        if bias:
            add(prefix, bias=weight[:1])

    def norm(prefix, width):
        dense(prefix, width)

    def own(prefix, width, n, head):
        add(prefix, scale=(1, 1, width), positional_encoding=(1, n, width))
        dense(f"{prefix}.dwc", width // head, 1, 5, 5)

    for i, (depth, head, c, grid) in enumerate(zip(depths, heads, dims, grids, strict=True)):
        before = dims[i - 1] if i else 3
        ratio = options.get("mlp", (4,) * 4)[i]
        linear = family in ("pvt", "pvtv2") or i < linear_stages
        if family in ("pvt", "pvtv2"):
            size = (7 if i == 0 else 3) if family == "pvtv2" else (2 if i else 4)
            dense(f"patch_embed{i + 1}.proj", c, before, size, size)
            norm(f"patch_embed{i + 1}.norm", c)
            if family == "pvt":
                shapes[f"pos_embed{i + 1}"] = (1, grid**2, c)
            else:
                norm(f"norm{i + 1}", c)
        elif family == "cswin":
            conv, embed_norm = (
                ("stage1_conv_embed.0", "stage1_conv_embed.2") if i == 0 else (f"merge{i}.conv", f"merge{i}.norm")
            )
            size = 3 if i else 7
            dense(conv, c, before, size, size)
            norm(embed_norm, c)
        elif i == 0:
            dense("patch_embed.proj", c, 3, 4, 4)
            norm("patch_embed.norm", c)
        else:
            dense(f"layers.{i - 1}.downsample.reduction", c, 4 * before, bias=False)
            norm(f"layers.{i - 1}.downsample.norm", 4 * before)
        for j in range(depth):
            block = {"swin": f"layers.{i}.blocks.{j}", "cswin": f"stage{i + 1}.{j}"}.get(family, f"block{i + 1}.{j}")
            norm(f"{block}.norm1", c)
            norm(f"{block}.norm2", c)
            dense(f"{block}.mlp.fc1", c * ratio, c)
            dense(f"{block}.mlp.fc2", c, c * ratio)
            if family == "pvtv2":
                dense(f"{block}.mlp.dwconv.dwconv", c * ratio, 1, 3, 3)
            if family == "cswin":
                dense(f"{block}.qkv", 3 * c, c)
                dense(f"{block}.proj", c, c)
                branches = 1 if linear or i == 3 else 2
                for branch in range(branches):
                    dense(f"{block}.attns.{branch}.get_v", c // branches, 1, 3, 3)
                if linear:
                    own(f"{block}.attns.0", c, grid**2, head)
                continue
            dense(f"{block}.attn.proj", c, c)
            if family == "swin":
                dense(f"{block}.attn.qkv", 3 * c, c)
            else:
                dense(f"{block}.attn.q", c, c)
                dense(f"{block}.attn.kv", 2 * c, c)
            if linear:
                own(f"{block}.attn", c, grid**2, head)
            else:
                window = options["window"]
                shapes[f"{block}.attn.relative_position_bias_table"] = ((2 * window - 1) ** 2, head)
                shapes[f"{block}.attn.relative_position_index"] = (window**2, window**2)
                if j % 2 and grid > window:
                    shapes[f"{block}.attn_mask"] = ((grid // window) ** 2, window**2, window**2)
    if family != "pvtv2":
        norm("norm", dims[-1])
    dense("head", 1000, dims[-1])
    return shapes
