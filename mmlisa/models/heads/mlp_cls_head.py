"""A classifier with one hidden layer, behind global average pooling."""

from typing import Any

import torch
from mmpretrain.models.heads import ClsHead
from torch import Tensor, nn

from mmlisa.models.init_cfg import loading_from_init_cfg
from mmlisa.models.mlp_head import hidden_layers
from mmlisa.registry import MODELS


@MODELS.register_module()
class MlpClsHead(ClsHead):
    """(LayerNorm,) Linear C -> 4 C, activation, LayerNorm, (dropout,) Linear.

    The defaults are those of LiSANet, whose networks end with a norm and have no ``pre_norm``: only this reading of the paper
    makes the parameter counts of classifiers and detectors agree. MetaFormer's head, which iViT has, is ``dict(pre_norm=True,
    activation='SquaredReLU', dropout=0.4)`` behind a backbone without a last norm.

    Args:
        activation: ``'GELU'``, ``'ReLU'`` or ``'SquaredReLU'``.
        pre_norm: LayerNorm on the pooled features.
        dropout: rate before the last layer.
        init_scale: factor on the initial weight and bias of the last layer; ConvNeXt fine-tunes with 0.001.
        kwargs: options of mmpretrain's ``ClsHead``: ``loss``, ``topk``, ``cal_acc``, ``init_cfg``.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        *,
        activation: str = "GELU",
        pre_norm: bool = False,
        dropout: float = 0.0,
        init_scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("init_cfg", dict(type="TruncNormal", layer="Linear", std=0.02))
        super().__init__(**kwargs)
        for name, layer in hidden_layers(in_channels, activation, pre_norm, dropout).items():
            self.add_module(name, layer)
        self.fc2 = nn.Linear(self.fc1.out_features, num_classes)
        self.init_scale = init_scale

    def init_weights(self) -> None:
        with loading_from_init_cfg(self):
            super().init_weights()
            with torch.no_grad():
                for parameter in self.fc2.parameters():
                    parameter.mul_(self.init_scale)

    def pre_logits(self, feats: tuple[Tensor, ...]) -> Tensor:
        """Return the last layer's input ``[B, 4 C]`` for the last of the pooled maps, ``[B, C]``."""
        x = self.pre_norm(feats[-1])
        return self.dropout(self.norm(self.activation(self.fc1(x))))

    def forward(self, feats: tuple[Tensor, ...]) -> Tensor:
        """Return class scores ``[B, num_classes]`` for the last of the pooled maps ``[B, C_i]``."""
        return self.fc2(self.pre_logits(feats))
