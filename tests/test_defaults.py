"""Defaults that a paper, or the code that it follows, states: whoever writes nothing into a config gets these."""

import inspect
from importlib import import_module

import pytest

DEFAULTS = {
    # LiSA: D = 8, kernels of the whole map, a norm before the projection.
    "mmlisa.models.attention.LiSA": dict(
        num_patterns=8, kernel_size=None, norm=True, encoding_bias=False, qkv_bias=True
    ),
    "mmlisa.models.attention.StructureAwareAttention": dict(form="hadamard", num_patterns=16, per_head=False),
    "mmlisa.models.attention.RelationalSelfAttention": dict(num_patterns=16, qkv_bias=True),
    "mmlisa.models.attention.DepthwiseConv": dict(kernel_size=7),
    "mmlisa.models.attention.ConvolutionalAttention": dict(kernel_size=3, stride=1),
    # FLatten, Sec. 5 and code: p = 3, a 5x5 convolution of the values.
    "mmlisa.models.attention.FocusedLinearAttention": dict(
        focusing_factor=3, kernel_size=5, window=None, position=True
    ),
    "mmlisa.models.attention.ShiftedWindowAttention": dict(window_size=7, shift=False, qkv_bias=True),
    "mmlisa.models.attention.CrossShapedWindowAttention": dict(split_size=7, qkv_bias=True),
    # iViT: 49 landmarks; CAFormer's projections have no biases.
    "mmlisa.models.attention.InteractiveAttention": dict(
        landmarks=49, mix_before=True, mix_after=True, qkv_bias=False, proj_bias=False
    ),
    # Castling-ViT: a DConv of 9, ε = 0.02 throughout.
    "mmlisa.models.attention.LinearAngularAttention": dict(conv_size=9),
    "mmlisa.models.attention.ProjectedAttention": dict(
        epsilon=0.02, conv_size=None, aux=False, aux_in_eval=False, pooled=False, qkv_bias=True
    ),
    "mmlisa.models.attention.MeanCenteredAttention": dict(axis="tokens"),
    "mmlisa.models.attention.SoftmaxAttention": dict(qkv_bias=True, rpe=None),
    "mmlisa.training.castling.CastlingHook": dict(
        schedule="constant", epsilon=0.02, end_epsilon=1.0, begin=0.9, drop_at=1.0
    ),
    # PicoDet, Sec. 3.2 and 3.3, and PaddleDetection.
    "mmlisa.models.dense_heads.PicoHead": dict(strides=(8, 16, 32, 64), reg_max=7, kernel_size=5, stacked_convs=2),
    "mmlisa.models.necks.CSPPAN": dict(kernel_size=5, num_outs=4),
    "mmlisa.models.necks.LCPAN": dict(kernel_size=5, num_outs=4),
    "mmlisa.training.ema.ThresholdEMA": dict(decay=0.9998),
    # MetaFormer's and LiSANet's head; DeiT's hard distillation.
    "mmlisa.models.heads.MlpClsHead": dict(
        hidden_ratio=4, activation="GELU", pre_norm=False, dropout=0.0, init_scale=1.0
    ),
    "mmlisa.models.heads.DistilledClassifier": dict(weight=0.5, distill_head=None),
    # At least half of a backbone, nine tenths of a model, must be in a checkpoint.
    "mmlisa.checkpoints.load_weights": dict(min_matched=0.9),
    "mmlisa.models.init_cfg._load_pretrained": dict(min_matched=0.5),
}


@pytest.mark.parametrize("path", DEFAULTS)
def test_defaults(path):
    module, _, name = path.rpartition(".")
    parameters = inspect.signature(getattr(import_module(module), name)).parameters
    assert {key: parameters[key].default for key in DEFAULTS[path]} == DEFAULTS[path]
