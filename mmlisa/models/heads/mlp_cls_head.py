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
    """(LayerNorm,) Linear, activation, LayerNorm, (dropout,) Linear.

    The defaults are LiSANet's. Its networks end with a norm, so there is no ``pre_norm``: only this reading of the paper makes
    the parameter counts of classifiers and detectors agree. MetaFormer's (iViT's) is ``dict(pre_norm=True,
    activation='SquaredReLU', dropout=0.4)``, for a backbone that ends without a norm.

    Args:
        num_classes: number of classes.
        in_channels: channels C of the pooled features.
        hidden_ratio: width of the hidden layer in units of C.
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
        hidden_ratio: float = 4,
        activation: str = "GELU",
        pre_norm: bool = False,
        dropout: float = 0.0,
        init_scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("init_cfg", dict(type="TruncNormal", layer="Linear", std=0.02))
        super().__init__(**kwargs)
        layers = hidden_layers(
            in_channels, hidden_ratio=hidden_ratio, activation=activation, pre_norm=pre_norm, dropout=dropout
        )
        for name, layer in layers.items():
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
        """The last of the pooled maps ``[B, C]`` -> the last layer's input ``[B, hidden]``."""
        x = self.pre_norm(feats[-1])
        return self.dropout(self.norm(self.activation(self.fc1(x))))

    def forward(self, feats: tuple[Tensor, ...]) -> Tensor:
        """``[B, C_i]`` per map -> class scores ``[B, num_classes]``, from the last one."""
        return self.fc2(self.pre_logits(feats))
