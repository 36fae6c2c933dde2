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


def deform_conv2d(x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *geometry: int) -> Tensor:
    """torchvision's deformable convolution (https://arxiv.org/abs/1811.11168) by ``grid_sample``, which ONNX has at opset 18.

    ``x [B, C, H, W]``, ``offset [B, 2 G K, H', W']`` (y and x of each of the K kernel points) -> ``[B, O, H', W']``.
    ``geometry``: stride, padding and dilation (two each), groups, offset groups G, and whether ``mask`` counts.
    """
    *geometry, groups, offset_groups, use_mask = geometry
    kernel, count = weight.shape[2:], weight.shape[2:].numel()
    points = torch.arange(count, device=x.device)[:, None, None]
    shift = offset.unflatten(1, (offset_groups, count, 2)).unbind(3)
    grid = []
    for axis, point in ((1, points % kernel[1]), (0, points // kernel[1])):
        stride, padding, dilation = geometry[axis::2]
        step = torch.arange(offset.shape[2 + axis], device=x.device) * stride - padding
        place = shift[axis] + point * dilation + (step if axis else step[:, None])
        grid.append((2 * place + 1) / x.shape[2 + axis] - 1)
    grid = torch.stack(grid, dim=-1).flatten(0, 1).flatten(1, 2)
    maps = x.unflatten(1, (offset_groups, -1)).flatten(0, 1)
    sampled = nn.functional.grid_sample(maps, grid, align_corners=False)
    sampled = sampled.unflatten(0, (-1, offset_groups)).unflatten(3, (count, -1))  # [B, G, C / G, K, H', W']
    if use_mask:
        sampled = sampled * mask.unflatten(1, (offset_groups, 1, -1))
    weight = weight.flatten(1)[:, :, None, None]
    return nn.functional.conv2d(sampled.flatten(1, 3), weight, bias, groups=groups)


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


def _remove_second_names(graph: fx.Graph) -> None:
    """Remove conversions that change nothing: the exporter fails on a second name of a weight."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.type_as.default):
        if node.args[0].meta["val"].dtype == node.meta["val"].dtype:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _convert(program: torch.export.ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    merge_equal(program.graph)
    replaced = {torch.ops.torchvision.deform_conv2d.default: deform_conv2d}
    if any(node.target in replaced for node in program.graph.nodes):
        _remove_second_names(program.graph)
        program = program.run_decompositions(replaced)
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

    mmcv's deformable convolutions and attention and mmseg's ``resize`` with aligned corners compute sizes by ``int()``.
    """
    parts = [part for part in follow_sizes(module).modules() if not isinstance(part, nn.Upsample)]
    if any(getattr(part, "align_corners", False) for part in parts):
        return False
    names = {type(part).__name__ for part in parts}
    return not any("DeformConv2d" in name or name == "MultiScaleDeformableAttention" for name in names)


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
