"""Static quantisation by its options: accuracy and time of what ``mmlisa export --int8`` was chosen from.

``python -m research.eight_bits CONFIG MODEL.onnx IMAGES`` writes the variants into a folder ``eight_bits`` beside MODEL.onnx and
prints their metrics on the test data of the config, and their times.
"""

import sys
from pathlib import Path
from typing import Any

from mmlisa.deploy import runtime
from mmlisa.deploy.quantise import compare, find_images, quantise_graph
from mmlisa.training.config import load_config

from .benchmark import Row

CONVOLUTIONS = ["Conv"]


def variants(graph: Any) -> dict[str, dict[str, Any]]:
    """Options of onnxruntime's ``quantize_static`` for an ONNX graph, by what they do beside the options of ``--int8``."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType

    depthwise = [node.name for node in graph.node if node.op_type == "Conv" and _groups(node) > 1]
    last = last_convolutions(graph)
    only = dict(op_types_to_quantize=CONVOLUTIONS)
    percentile = dict(calibrate_method=CalibrationMethod.Percentile, extra_options=dict(CalibPercentile=99.99))
    return {
        "`--int8`": {},
        "weights of 8 bits": dict(reduce_range=False),
        "per tensor": dict(per_channel=False),
        "ranges by percentile": percentile,
        "signed activations": dict(activation_type=QuantType.QInt8),
        "convolutions only": only,
        "convolutions only, weights of 8 bits": dict(only, reduce_range=False),
        "convolutions only, per tensor": dict(only, per_channel=False),
        "convolutions only, ranges by percentile": dict(only, **percentile),
        "convolutions only, the last ones in fp32": dict(only, nodes_to_exclude=last),
        "convolutions only, depthwise ones in fp32": dict(only, nodes_to_exclude=depthwise),
        "convolutions only, depthwise and last ones in fp32": dict(only, nodes_to_exclude=depthwise + last),
        "convolutions only, as QLinearConv": dict(only, quant_format=QuantFormat.QOperator),
    }


def last_convolutions(graph: Any) -> list[str]:
    """Names of the convolutions that no other convolution follows, such as the predictors of a head."""
    found, followed = [], set()  # tensors from which a convolution is computed
    for node in reversed(graph.node):
        is_followed = not followed.isdisjoint(node.output)
        if node.op_type == "Conv" and not is_followed:
            found.append(node.name)
        if node.op_type == "Conv" or is_followed:
            followed.update(node.input)
    return found


def expand_hard_sigmoids(model: Any) -> list[str]:
    """Replace each HardSigmoid of an ONNX model by Mul, Add and Clip, which have forms for integers.

    Returns:
        Names of the new operators and of the products that take their results: those of hard swishes and of squeezes.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    nodes, gates, expanded = [], set(), []
    for node in model.graph.node:
        if node.op_type == "Mul" and gates & set(node.input):
            node.name = node.name or f"gated_{node.output[0]}"
            expanded.append(node.name)
        if node.op_type != "HardSigmoid":
            nodes.append(node)
            continue
        (x,), (y,) = node.input, node.output
        given = {attribute.name: attribute.f for attribute in node.attribute}
        values = dict(alpha=given.get("alpha", 0.2), beta=given.get("beta", 0.5), low=0.0, high=1.0)
        names = {key: f"{y}_{key}" for key in values}
        model.graph.initializer.extend(numpy_helper.from_array(np.float32(values[key]), names[key]) for key in values)
        nodes += [
            helper.make_node("Mul", [x, names["alpha"]], [f"{y}_scaled"], f"{y}_Mul"),
            helper.make_node("Add", [f"{y}_scaled", names["beta"]], [f"{y}_shifted"], f"{y}_Add"),
            helper.make_node("Clip", [f"{y}_shifted", names["low"], names["high"]], [y], f"{y}_Clip"),
        ]
        expanded += [added.name for added in nodes[-3:]]
        gates.add(y)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return expanded


def _groups(node: Any) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)


def to_markdown(results: dict[str, Row]) -> str:
    """A row for each variant."""
    metrics = list(next(iter(results.values())))
    lines = ["| quantisation | " + " | ".join(metrics) + " |", "|---" * (1 + len(metrics)) + "|"]
    for name, row in results.items():
        lines.append(f"| {name} | " + " | ".join(f"{row[metric]:.4g}" for metric in metrics) + " |")
    return "\n".join(lines)


def main(config: str, path: Path, images: Path) -> None:
    import onnx
    from onnxruntime.quantization import quant_pre_process

    model, pictures = runtime.load(path), find_images(images)
    folder = path.parent / "eight_bits"
    folder.mkdir(exist_ok=True)
    files, prepared, expanded = {"none": path}, folder / "prepared.onnx", folder / "expanded.onnx"
    quant_pre_process(path, prepared, skip_symbolic_shape=True)  # fuses batch norms, and may rename nodes
    proto = onnx.load(prepared)
    cases = [(name, prepared, options) for name, options in variants(proto.graph).items()]
    if gates := expand_hard_sigmoids(proto):
        onnx.save(proto, expanded)
        types = [*CONVOLUTIONS, "Mul", "Add", "Clip"]
        convolutions = [node.name for node in proto.graph.node if node.op_type == "Conv"]
        options = dict(op_types_to_quantize=types, nodes_to_quantize=convolutions + gates)
        cases.append(("convolutions and hard swishes", expanded, options))
    for name, source, options in cases:
        target = folder / f"{path.stem}_{len(files)}.onnx"
        try:
            inputs = (model.prepare(runtime.read_image(picture))[0] for picture in pictures)
            quantise_graph(source, target, inputs, **options)
            runtime.load(target)
        except Exception as error:  # of onnxruntime's own types, which derive from Exception
            print(f"{name}: {str(error).strip().splitlines()[0]}", flush=True)
            continue
        files[name] = target
    print(to_markdown(compare(load_config(config), files, pictures[0], rounds=31, threads=1)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
