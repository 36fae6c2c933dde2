"""Attention operators as pure tensor functions; they import torch and nothing else."""

from .lisa import lisa, resize_kernel

__all__ = ["lisa", "resize_kernel"]
