"""Names and shapes of the official FLatten files, written from the paper and their checkpoints' layout.

``goldens/official_flatten.npz`` holds the logits of the smallest model of each family, in fp64 with the weights of
``golden_weights.values`` and its image. They come from a second implementation of the networks as plain functions of their state
dicts, independent of the package: one head at a time, one window at a time. The git history keeps it in this file.
"""

# Depths, widths and heads of the smallest model of each family.
SWIN_TINY = dict(depths=(2, 2, 6, 2), heads=(3, 6, 12, 24), dims=(96, 192, 384, 768), window=7)
PVT_TINY = dict(depths=(2, 2, 2, 2), heads=(1, 2, 5, 8), dims=(64, 128, 320, 512), mlp=(8, 8, 4, 4))
PVTV2_B0 = dict(depths=(2, 2, 2, 2), heads=(1, 2, 5, 8), dims=(32, 64, 160, 256), mlp=(8, 8, 4, 4))
CSWIN_TINY = dict(depths=(2, 4, 18, 1), heads=(2, 4, 8, 16), dims=(64, 128, 256, 512), splits=(1, 2, 7, 7))


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
