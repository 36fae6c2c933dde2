"""Recording of graphs, their conversion to ONNX, and layers whose graphs follow the size of the image."""

import traceback
import warnings
from collections.abc import Sequence
from copy import deepcopy
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim

from mmlisa.errors import UserError
from mmlisa.ops.landmarks import pooling_windows

from .conditions import Conditions
from .whole import EndToEnd

OPSET = 18
# Some networks take multiples of a number only.
FIX_SIZE = "take --size H W, or, for a segmentor, --cfg-options model.data_preprocessor.test_cfg.size_divisor=32"


def record(module: nn.Module, inputs: tuple[Tensor, ...], shapes: dict[int, Any]) -> torch.export.ExportedProgram:
    """Record the graph of a module whose first input has free axes; a batch that cannot be free is 1.

    Raises:
        UserError: PyTorch cannot record it; the message names the innermost layer.
    """
    try:
        return torch.export.export(module, inputs, dynamic_shapes=(shapes or None, None)[: len(inputs)], strict=False)
    except Exception as error:  # each layer fails in its own way
        if 0 in shapes:  # a layer may take the size of the batch for a constant
            return record(module, (inputs[0][:1], *inputs[1:]), {axis: dim for axis, dim in shapes.items() if axis})
        owners = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
        layers = [owner for owner in owners if isinstance(owner, nn.Module) and not isinstance(owner, fx.GraphModule)]
        advice = f"{FIX_SIZE}; " if 2 in shapes else ""
        reason = f"{type([module, *layers][-1]).__name__}: {shorten(str(error), 200)}"
        raise UserError(
            f"PyTorch cannot record {reason}; {advice}--raw writes the network without its results"
        ) from error


def to_onnx(module: nn.Module, image: Tensor, shapes: dict[int, Any], outputs: Sequence[str]) -> tuple[Any, Conditions]:
    """Return the graph of a module as an ONNX model with the named outputs, and the conditions of its recording.

    The threshold of a detector is a second input.
    """
    divisor = module.preprocess.divisor if isinstance(module, EndToEnd) else 1
    if divisor == 1 or 2 not in shapes:
        program = record(module, (image,), shapes)
        conditions = Conditions(program)
        model = _convert(program, ["image"], outputs)
    else:
        # The network is recorded on multiples of the divisor: with sizes rounded up inside, PyTorch's symbols grow until the
        # recording takes hours. The padding is a graph before it.
        from onnx import compose

        multiples = shapes | {2: divisor * Dim("h", min=2), 3: divisor * Dim("w", min=2)}
        program = record(module, module.preprocess(image), multiples)
        conditions = Conditions(program, divisor)
        network = _convert(program, ["padded", "limits"], outputs)
        before = _convert(record(module.preprocess, (image,), shapes), ["image"], ["padded", "limits"])
        network = compose.add_prefix(network, "network/", rename_inputs=False, rename_outputs=False)
        model = compose.merge_models(before, network, [("padded", "padded"), ("limits", "limits")])
        del model.opset_import[1:]  # both graphs have the same
    from onnx import helper

    for weight in model.graph.initializer:
        if weight.name.split("/")[-1] == "threshold":
            model.graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    return model, conditions


def merge_equal(graph: fx.Graph) -> None:
    """Merge equal nodes that follow from sizes alone, such as the Fourier matrices of all layers: a node takes ms to convert.

    The graph stays as it is if one of these tensors is changed in place.
    """
    known = {}
    for node in graph.nodes:
        others = [each.meta.get("val") for each in node.all_input_nodes if each not in known]
        if node.op == "call_function" and all(isinstance(value, torch.types.py_sym_types) for value in others):
            if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
                return
            known[node] = None
    first = {}
    for node in known:
        kept = first.setdefault((node.target, str(node.args), str(node.kwargs)), node)
        if kept is not node:
            node.replace_all_uses_with(kept)
            graph.erase_node(node)


def _convert(program: torch.export.ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    merge_equal(program.graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Runtimes simplify what they load; the exporter takes minutes for that.
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
                optimize=False,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = shorten(str(error.__cause__ or error), 200)
            raise UserError(f"PyTorch cannot convert this network to ONNX: {reason}") from error
    from onnx import inliner

    # onnxruntime does not fold CastLike, and behind it neither the biases of convolutions nor their batch norms. Its definition,
    # a Cast, is folded.
    model = inliner.inline_selected_functions(exported.model_proto, [("", "CastLike")], inline_schema_functions=True)
    for node in model.graph.node:
        del node.metadata_props[:]  # PyTorch's stack traces, megabytes
    return model


def can_be_free(module: nn.Module) -> bool:
    """Return whether the graph of a model can leave H and W free.

    mmcv's deformable attention and mmseg's ``resize`` with aligned corners compute sizes by ``int()``.
    """
    parts = [part for part in follow_sizes(module).modules() if not isinstance(part, nn.Upsample)]
    if any(getattr(part, "align_corners", False) for part in parts):
        return False
    return all(type(part).__name__ != "MultiScaleDeformableAttention" for part in parts)


class _AveragePool(nn.Module):
    """``nn.AdaptiveAvgPool2d`` as two products with averaging matrices, which follow the size of the map."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (pooling_windows(size, self.side, x) for size in x.shape[2:])
        return rows @ x @ columns.T


def follow_sizes(model: nn.Module) -> nn.Module:
    """Return a copy of a model, with its weights, without the layers in which a recorded graph would keep the example's size."""
    model = deepcopy(model, {id(x): x for x in (*model.parameters(), *model.buffers())})
    for module in list(model.modules()):
        for name, child in module.named_children():
            kind = type(child).__name__
            # mmseg's, which computes its size with int()
            if kind == "Upsample" and getattr(child, "scale_factor", None) and not child.size:
                layer = nn.Upsample(None, child.scale_factor, child.mode, child.align_corners)
            elif kind == "AdaptiveAvgPool2d" and isinstance(child.output_size, int) and child.output_size > 1:
                layer = _AveragePool(child.output_size)
            else:
                continue
            setattr(module, name, layer)
    return model
