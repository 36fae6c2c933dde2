"""Attention operators as pure tensor functions; they import torch and nothing else.

``mmlisa.ops.lisa`` is the function. The package of the same name holds its backends: ``from mmlisa.ops.lisa import fft``.
"""

from .agent import agent
from .depthwise import depthwise_per_image
from .efficient import efficient
from .focused_linear import focused_linear
from .global_filter import global_filter, resize_spectrum
from .hydra import hydra
from .inline import inline
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
from .mala import mala
from .mila import mila
from .polarity_aware import polarity_aware
from .precision import at_least_fp32, layer_dtype, no_autocast
from .rala import rala
from .recompute import linear_of
from .relational import relational
from .relative import circulant, toeplitz
from .rotary import rotary
from .structure_aware import structure_aware, weighted_attention
from .ttt import ttt_convolution, ttt_glu
