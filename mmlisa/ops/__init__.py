"""Attention operators as pure tensor functions; they import torch and nothing else. Names are imported at their first use."""

from mmlisa.lazy import names_at_first_use

__all__, __getattr__, __dir__ = names_at_first_use(
    __name__,
    {
        "cells": "cell_attention",
        "circular": "LiSAKernels lisa",
        "context": "at_least_fp32 beyond_fp16 no_autocast",
        "focused": "focused_linear",
        "landmarks": "agent interactive interactive_softmax pool_landmarks",
        "linear": (
            "cosine_attention efficient hydra inline linear_angular masked_softmax mean_centered_attention "
            "normalize_length relu_exp_attention relu_softmax_attention"
        ),
        "pairwise": "lambda_convolution relational structure_aware weighted_attention",
        "polarity": "polarity_aware",
        "recompute": "linear_of",
        "relative": "circulant global_filter resize_kernel resize_spectrum toeplitz",
        "rotated": "mala mila rala rotary",
        "ttt": "depthwise_per_image ttt_convolution ttt_glu",
    },
)
