"""Attention operators as pure tensor functions; they import torch and nothing else."""

from .efficient import efficient
from .focused_linear import focused_linear
from .global_filter import global_filter, resize_spectrum
from .hydra import hydra
from .interactive import interactive, interactive_softmax, landmark_side, pool_landmarks
from .lisa import LiSAKernels, lisa, resize_kernel
from .relational import lambda_convolution, relational
from .relative import circulant, toeplitz
from .structure_aware import structure_aware, weighted_attention

__all__ = [
    "LiSAKernels",
    "circulant",
    "efficient",
    "focused_linear",
    "global_filter",
    "hydra",
    "interactive",
    "interactive_softmax",
    "lambda_convolution",
    "landmark_side",
    "lisa",
    "pool_landmarks",
    "relational",
    "resize_kernel",
    "resize_spectrum",
    "structure_aware",
    "toeplitz",
    "weighted_attention",
]
