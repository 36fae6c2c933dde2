"""Make the model of ``mmlisa demo`` from the best checkpoint of its training: ``tools/demo_model.py CHECKPOINT``.

The training is ``tools/train.py configs/mask_rcnn_hylisanet_shipped_demo.py``.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

CONFIG = "mask_rcnn_hylisanet_shipped_demo.py"
SIZE = ("--size", "192", "192")  # a file of free size has tables for every size: 32 MB
SAMPLES = ("data/demo/val/000000000006.jpg", "data/demo/val/000000000017.jpg")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("checkpoint", type=cli.checkpoint, help="best_*.pth of the training")
    return parser.parse_args(argv)


def halve(source: Path, target: Path) -> None:
    """Write an ONNX file whose weights are stored in half precision and cast to single precision at the start."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(source)
    graph, casts = model.graph, []
    for weight in graph.initializer:
        if weight.data_type == TensorProto.FLOAT and np.prod(weight.dims) >= 64:
            name, half = weight.name, numpy_helper.to_array(weight).astype(np.float16)
            weight.CopyFrom(numpy_helper.from_array(half, f"{name}.half"))
            casts.append(helper.make_node("Cast", [weight.name], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, target)


def main(args: argparse.Namespace) -> None:
    import torch

    from mmlisa.checkpoints import read_checkpoint, save_checkpoint
    from mmlisa.deploy.opening import DEMO
    from mmlisa.training.config import load_config
    from mmlisa.training.runner import build_runner

    DEMO.mkdir(exist_ok=True)
    loaded = read_checkpoint(args.checkpoint)
    state = {name: t.half() if t.is_floating_point() else t for name, t in loaded["state_dict"].items()}
    half = DEMO / "model.pth"
    save_checkpoint({"state_dict": state, "meta": {"dataset_meta": loaded["meta"]["dataset_meta"]}}, half)
    cfg = load_config(CONFIG)
    cfg.load_from = str(half)
    metrics = build_runner(cfg, 1.0, verbose=False).test()
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "model.onnx"
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name("export.py")), CONFIG, str(half), str(exported), *SIZE],
            check=True,
        )
        halve(exported, DEMO / "model.onnx")
    for image in SAMPLES:
        shutil.copy(image, DEMO)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    about = {
        "model": "Mask R-CNN with a narrow HyLiSANet",
        "classes": list(loaded["meta"]["dataset_meta"]["classes"]),
        "box_AP50": round(metrics["coco/bbox_mAP_50"], 3),
        "mask_AP50": round(metrics["coco/segm_mAP_50"], 3),
        "parameters": sum(t.numel() for t in state.values()),
        "command": f"tools/train.py configs/{CONFIG}; tools/demo_model.py best_*.pth",
        "commit": commit.strip(),
        "torch": torch.__version__,
    }
    (DEMO / "model.json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"written to {DEMO}: {about}")


if __name__ == "__main__":
    cli.run(main, parse_args())
