"""Attention operators as pure tensor functions; they import torch and nothing else."""

from .interactive import interactive, interactive_softmax, landmark_side, pool_landmarks
from .lisa import lisa, resize_kernel
from .relative import circulant, toeplitz

__all__ = [
    "circulant",
    "interactive",
    "interactive_softmax",
    "landmark_side",
    "lisa",
    "pool_landmarks",
    "resize_kernel",
    "toeplitz",
]
