"""Attention operators as pure tensor functions; they import torch and nothing else.

``mmlisa.ops.lisa`` is the function. The package of the same name holds its backends: ``from mmlisa.ops.lisa import fft``.
"""

from .depthwise import depthwise
from .efficient import efficient
from .focused_linear import focused_linear
from .global_filter import global_filter, resize_spectrum
from .hydra import hydra
from .interactive import interactive, interactive_softmax, landmark_side, pool_landmarks
from .lambda_convolution import lambda_convolution
from .linear_angular import angular_similarity, linear_angular, masked_softmax, unit
from .linear_kernels import (
    MC_AXES,
    cosine_attention,
    mean_centered_attention,
    relu_exp_attention,
    relu_softmax_attention,
)
from .lisa import LiSAKernels, lisa, resize_kernel
from .precision import at_least_fp32, no_autocast
from .recompute import linear_of
from .relational import relational
from .relative import circulant, toeplitz
from .star_relu import star_relu
from .structure_aware import structure_aware, weighted_attention

__all__ = [
    "MC_AXES",
    "LiSAKernels",
    "angular_similarity",
    "at_least_fp32",
    "circulant",
    "cosine_attention",
    "depthwise",
    "efficient",
    "focused_linear",
    "global_filter",
    "hydra",
    "interactive",
    "interactive_softmax",
    "lambda_convolution",
    "landmark_side",
    "linear_angular",
    "linear_of",
    "lisa",
    "masked_softmax",
    "mean_centered_attention",
    "no_autocast",
    "pool_landmarks",
    "relational",
    "relu_exp_attention",
    "relu_softmax_attention",
    "resize_kernel",
    "resize_spectrum",
    "star_relu",
    "structure_aware",
    "toeplitz",
    "unit",
    "weighted_attention",
]
