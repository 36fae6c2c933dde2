"""Make the model of ``mmlisa demo`` from the best checkpoint of its training: ``tools/demo_model.py CHECKPOINT``.

The training is ``tools/train.py configs/mask_rcnn_hylisanet_shipped_demo.py``. With the shipped ``model.pth``, the tool tests and
exports it again; ``model.json`` says which commits trained and exported it.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli
from mmlisa.inference.load import DEMO, DEMO_CONFIG

SAMPLES = ("data/demo/val/000000000006.jpg", "data/demo/val/000000000008.jpg")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("checkpoint", type=cli.weights_source, help="best_*.pth of the training")
    return parser.parse_args(argv)


def halve(source: Path, target: Path) -> None:
    """Write an ONNX file with weights in 16 bits, cast at the start, and without repeated nodes or names of modules."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(source)
    graph, casts, nodes, same, seen = model.graph, [], [], {}, {}
    for weight in graph.initializer:
        array, whole = numpy_helper.to_array(weight), weight.data_type
        if whole in (TensorProto.FLOAT, TensorProto.INT64) and array.size >= 64 and np.abs(array).max() < 2**15:
            dtype = np.float16 if whole == TensorProto.FLOAT else np.min_scalar_type(array.max())
            name = weight.name
            weight.CopyFrom(numpy_helper.from_array(array.astype(dtype), f"{name}.small"))
            casts.append(helper.make_node("Cast", [weight.name], [name], to=whole))
    for weight in graph.initializer:
        first = seen.setdefault((weight.data_type, *weight.dims, weight.raw_data), weight)
        same[weight.name] = first.name
    ends = {value.name for value in graph.output}
    for node in (*casts, *graph.node):
        node.input[:] = [same.get(name, name) for name in node.input]
        first = seen.setdefault((node.op_type, *node.input, *(one.SerializeToString() for one in node.attribute)), node)
        if first is node or ends & set(node.output):
            nodes.append(node)
        same.update(zip(node.output, first.output, strict=True))
    names = {value.name: value.name for value in (*graph.input, *graph.output)} | {"": ""}
    for node in nodes:
        del node.metadata_props[:]  # names of modules
        node.name = ""
        for values in (node.input, node.output):
            values[:] = [names.setdefault(name, f"v{len(names)}") for name in values]
    weights = [weight for weight in graph.initializer if same[weight.name] == weight.name]
    for weight in weights:
        weight.name = names.setdefault(weight.name, f"v{len(names)}")
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)
    onnx.save(model, target)


def main(args: argparse.Namespace) -> None:
    import torch

    from mmlisa.checkpoints import read_checkpoint, save_checkpoint
    from mmlisa.training.config import load_config
    from mmlisa.training.runner import build_runner

    DEMO.mkdir(exist_ok=True)
    loaded = read_checkpoint(args.checkpoint)
    state = {name: t.half() if t.is_floating_point() else t for name, t in loaded["state_dict"].items()}
    half, file = DEMO / "model.pth", DEMO / "model.json"
    is_shipped = half.exists() and half.samefile(args.checkpoint)
    if not is_shipped:
        meta = {key: loaded["meta"][key] for key in ("dataset_meta", "backbone")}
        save_checkpoint({"state_dict": state, "meta": meta}, half)
    cfg = load_config(DEMO_CONFIG, options={"load_from": str(half)})
    metrics = build_runner(cfg, whole=True, verbose=False).test()
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "model.onnx"
        cli.main(["export", DEMO_CONFIG, str(half), str(exported)])
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
        "command": f"tools/train.py configs/{DEMO_CONFIG}; tools/demo_model.py best_*.pth",
        "trained": json.loads(file.read_text())["trained"] if is_shipped else commit.strip(),
        "exported": commit.strip(),
        "torch": torch.__version__,
    }
    file.write_text(json.dumps(about, indent=1) + "\n")
    print(f"written to {DEMO}: {about}")


if __name__ == "__main__":
    cli.run(main, parse_args())
