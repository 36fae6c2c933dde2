"""Pooling inside regions of interest: RoIAlign, RoIPool, and the deformable form.

Regions are ``[N, 5]``: the image's index, then x1, y1, x2, y2 in pixels of the image; ``spatial_scale`` takes them to the
feature map ``[B, C, H, W]``. The result is ``[N, C, *size]``.
"""

from collections.abc import Iterator

import torch
import torchvision  # noqa: F401 (registers torch.ops.torchvision)
from torch import Tensor

from .precision import widest

_MAX = 0  # RoIAlign's pool_mode; 1 is the average
_NOWHERE = -2.0  # a coordinate outside every feature map


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """RoIAlign; with maxima, also the coordinates of each, ``[N, C, *size]``."""
    features, boxes = widest(input, rois)
    size = (aligned_height, aligned_width)
    if pool_mode != _MAX:
        align = torch.ops.torchvision.roi_align
        output.copy_(align(features, boxes, spatial_scale, *size, sampling_ratio, aligned))
        return
    start, extent = _scaled(boxes, spatial_scale, 0.5 if aligned else 0)
    if not aligned:
        extent = extent.clamp(min=1)
    argmax_y.fill_(_NOWHERE)
    argmax_x.fill_(_NOWHERE)
    for chosen, y, x in _sampling_points(start, extent, size, sampling_ratio):
        y, x = torch.broadcast_tensors(y, x)
        maximum, where = _sample(features, boxes[chosen, 0], y, x).flatten(-2).max(-1)
        output[chosen] = maximum.to(output.dtype)
        argmax_y[chosen], argmax_x[chosen] = (
            at[:, None].flatten(-2).expand(*maximum.shape, -1).gather(-1, where[..., None])[..., 0].to(output.dtype)
            for at in (y, x)
        )


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    grad, boxes = widest(grad_output, rois)
    size = (aligned_height, aligned_width)
    if pool_mode != _MAX:
        backward = torch.ops.torchvision._roi_align_backward
        grad_input.copy_(backward(grad, boxes, spatial_scale, *size, *grad_input.shape, sampling_ratio, aligned))
        return
    batch, channels, height, width = grad_input.shape
    plane = boxes[:, :1].long() * channels + torch.arange(channels, device=boxes.device)  # [N, C]
    total = grad.new_zeros(batch * channels * height * width)
    for index, weight in _corners(*widest(argmax_y, argmax_x), height, width):
        index = index + plane[:, :, None, None] * height * width
        total.index_add_(0, index.flatten(), (grad * weight).flatten())
    grad_input.copy_(total.view_as(grad_input))


def roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """The maximum of each bin's pixels. ``argmax`` is its index in the plane ``[H * W]``, -1 for bins without pixels.

    torchvision's rounds the regions to whole pixels first, mmcv's only the bins.
    """
    height, width = input.shape[2:]
    size = (pooled_height, pooled_width)
    pixels = torch.arange(height * width, device=input.device).view(height, width)
    for roi, pooled, where in zip(rois.float(), output, argmax, strict=True):
        lower, upper = roi[1:3] * spatial_scale, (roi[3:5] + 1) * spatial_scale
        if (upper <= lower).any():
            where.fill_(-1)  # mmcv leaves it at 0, and pixel 0 gets the gradient
            continue
        bins = []
        for axis, (count, limit) in enumerate(zip(size[::-1], (width, height), strict=True)):
            step = (upper[axis] - lower[axis]) / count
            edges = torch.arange(count, device=roi.device)
            first = (edges * step + lower[axis]).floor().clamp(0, limit).long().tolist()
            last = ((edges + 1) * step + lower[axis]).ceil().clamp(0, limit).long().tolist()
            bins.append([slice(*pair) for pair in zip(first, last, strict=True)])
        features = input[int(roi[0])]
        for row, rows in enumerate(bins[1]):
            for column, columns in enumerate(bins[0]):
                inside = pixels[rows, columns].flatten()
                if not len(inside):
                    where[:, row, column] = -1
                    continue
                maximum, index = features[:, rows, columns].flatten(1).max(1)
                pooled[:, row, column] = maximum
                where[:, row, column] = inside[index].int()


def roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    grad, boxes = widest(grad_output, rois)
    batch, channels, height, width = grad_input.shape
    plane = boxes[:, :1].long() * channels + torch.arange(channels, device=boxes.device)
    index = argmax.long().clamp(min=0) + plane[:, :, None, None] * height * width
    total = grad.new_zeros(batch * channels * height * width)
    total.index_add_(0, index.flatten(), (grad * (argmax >= 0)).flatten())
    grad_input.copy_(total.view_as(grad_input))


def deform_roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    offset: Tensor,
    output: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    gamma: float,
) -> None:
    """RoIAlign, each bin moved by ``offset`` ``[N, 2, *size]`` (x, y; or empty) times ``gamma`` and the region's size."""
    features, boxes, moves = widest(input, rois, offset)
    size = (pooled_height, pooled_width)
    output.copy_(_deform_roi_pool(features, moves, boxes, size, spatial_scale, sampling_ratio, gamma))


def deform_roi_pool_backward(
    grad_output: Tensor,
    input: Tensor,
    rois: Tensor,
    offset: Tensor,
    grad_input: Tensor,
    grad_offset: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    gamma: float,
) -> None:
    grad, features, boxes, moves = widest(grad_output, input, rois, offset)
    size = (pooled_height, pooled_width)

    def pool(features: Tensor, moves: Tensor) -> Tensor:
        return _deform_roi_pool(features, moves, boxes, size, spatial_scale, sampling_ratio, gamma)

    grads = torch.func.vjp(pool, features, moves)[1](grad)
    grad_input.copy_(grads[0])
    grad_offset.copy_(grads[1])


def _deform_roi_pool(
    features: Tensor,
    moves: Tensor,
    boxes: Tensor,
    size: tuple[int, int],
    spatial_scale: float,
    sampling_ratio: int,
    gamma: float,
) -> Tensor:
    start, extent = _scaled(boxes, spatial_scale, 0.5)
    output = features.new_zeros(len(boxes), features.shape[1], *size)
    for chosen, y, x in _sampling_points(start, extent, size, sampling_ratio):
        if moves.numel():
            x, y = (
                at + (gamma * extent[chosen, axis, None, None] * moves[chosen, axis])[..., None, None]
                for axis, at in enumerate((x, y))
            )
        pooled = _sample(features, boxes[chosen, 0], *torch.broadcast_tensors(y, x)).mean((-2, -1))
        output = output.index_add(0, chosen, pooled)
    return output


def _scaled(boxes: Tensor, spatial_scale: float, shift: float) -> tuple[Tensor, Tensor]:
    """Start and extent of each region on the feature map, both ``[N, 2]`` (x, y)."""
    corners = boxes[:, 1:] * spatial_scale - shift
    return corners[:, :2], corners[:, 2:] - corners[:, :2]


def _sampling_points(
    start: Tensor, extent: Tensor, size: tuple[int, int], sampling_ratio: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The points at which each bin is sampled, for regions with as many points per bin (gy × gx) together.

    Yields the regions' indices ``[n]``, and y ``[n, height, 1, gy, 1]`` and x ``[n, 1, width, 1, gx]``. Regions without
    an extent, and so without points, are left out.
    """
    bins = start.new_tensor(size[::-1])
    points = (extent / bins).ceil().long() if sampling_ratio <= 0 else torch.full_like(extent, sampling_ratio).long()
    for counts in points.unique(dim=0) if len(points) else points:
        if (counts <= 0).any():
            continue
        chosen = (points == counts).all(dim=1).nonzero()[:, 0]
        axes = []
        for axis, (count, bin_count) in enumerate(zip(counts.tolist(), size[::-1], strict=True)):
            step = (extent[chosen, axis] / bin_count)[:, None, None]
            bin_start = start[chosen, axis][:, None, None] + torch.arange(bin_count, device=step.device)[:, None] * step
            axes.append(bin_start + (torch.arange(count, device=step.device) + 0.5) * step / count)  # [n, bins, points]
        yield chosen, axes[1][:, :, None, :, None], axes[0][:, None, :, None, :]


def _sample(features: Tensor, image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Bilinear interpolation of ``[B, C, H, W]`` at ``y``, ``x`` ``[n, …]`` in the images ``image`` ``[n]``: ``[n, C, …]``."""
    height, width = features.shape[2:]
    planes = features.flatten(2).transpose(1, 2)  # [B, H * W, C]
    image = image.long().view(-1, *[1] * (y.dim() - 1))
    value = sum(planes[image, index] * weight[..., None] for index, weight in _corners(y, x, height, width))
    return value.movedim(-1, 1)


def _corners(y: Tensor, x: Tensor, height: int, width: int) -> list[tuple[Tensor, Tensor]]:
    """Index in ``[H * W]`` and bilinear weight of the four pixels around each point; zero if more than a pixel outside."""
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    neighbours = []
    for at, limit in ((y, height), (x, width)):
        at = at.clamp(0, limit - 1)
        low = at.detach().long()
        fraction = at - low
        neighbours.append([(low, 1 - fraction), ((low + 1).clamp(max=limit - 1), fraction)])
    return [
        (row * width + column, weight_y * weight_x * inside)
        for row, weight_y in neighbours[0]
        for column, weight_x in neighbours[1]
    ]
