"""Count parameters and multiply-accumulates of a config's model: ``mmlisa flops CONFIG``.

The model runs on the meta device, so any size takes seconds. mmlisa/complexity.py defines how operations are counted. A
two-stage detector is counted with 1000 proposals and 100 masks, a segmentor without its auxiliary head, and a detector on tiles
for one image of the size.
"""

import argparse
from importlib import import_module

from mmlisa import cli
from mmlisa.errors import UserError

# (H, W) that papers count at, by the library of the config.
SIZES = {"mmdet": (800, 1280), "mmseg": (512, 2048), "mmpretrain": (224, 224)}


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "flops")
    cli.add_shared(arguments, "config", "--cfg-options")
    sizes = ", ".join(f"{scope} {height} {width}" for scope, (height, width) in SIZES.items())
    arguments.add_argument(
        "--size", type=cli.positive_int, nargs="+", metavar="N", help=f"H W, or T H W (default: {sizes})"
    )
    return arguments


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.config import build_model, import_quietly, load_config, parse_options

    cfg = load_config(args.config, options=parse_options(args.cfg_options))
    scope = cfg.get("default_scope")
    size = args.size or SIZES.get(scope)
    if size is None:
        raise UserError(f"--size: there is no default for default_scope={scope!r}")

    import torch

    from mmlisa.checkpoints import use_safe_loader
    from mmlisa.complexity import count, forward_tables
    from mmlisa.inference.tiled import plain_config

    if not args.verbose:
        import_quietly(scope)
    import_module(f"{scope}.models")  # outside of the meta device, because importing creates tensors, too
    use_safe_loader()
    with torch.device("meta"):
        model = build_model(plain_config(cfg)[0])
    image = torch.empty(1, 3, *size, device="meta")
    print(f"{args.config} at {'x'.join(map(str, size))}\n{'':12}params M   MACs G")
    whole, backbone = count(model, image, forward=forward_tables), count(model.backbone, image)
    for name, counted in (("model", whole), ("backbone", backbone)):
        print(f"{name:10}{counted.parameters / 1e6:10.2f}{counted.macs / 1e9:9.3f}")
    print("MACs: convolutions, linear layers and matrix products; FFTs are not counted.")
