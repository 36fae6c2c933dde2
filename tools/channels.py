"""Print the table of the channels and strides of every arch of every backbone, a page of the site."""

import argparse

PAGE = """# Channels and strides

The table lists the maps of every named arch. A neck needs their channels. For another arch or other stages, call:

```python
import mmlisa

mmlisa.channels("LiSANet", "hybrid-small", out_indices=(1, 2, 3))  # [128, 320, 384]
mmlisa.strides("LiSANet", "hybrid-small", out_indices=(1, 2, 3))  # [8, 16, 32]
```

A plain ViT can return the map of each block; all have the same channels and stride. By default it returns the last.

| backbone | arch | out_indices | channels | strides |
|---|---|---|---|---|
"""


def to_markdown() -> str:
    """Return the page; the backbones are built on the meta device."""
    from mmlisa.models import backbones
    from mmlisa.models.feature_maps import feature_maps

    rows = []
    for name in sorted(backbones.__all__, key=str.lower):
        for arch in getattr(backbones, name).arch_settings:
            columns = [" ".join(map(str, column)) for column in zip(*feature_maps(name, arch), strict=True)]
            rows.append(f"| {name} | {arch} | {' | '.join(columns)} |\n")
    return PAGE + "".join(rows)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(to_markdown(), end="")
