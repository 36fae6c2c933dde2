# Plain ViT-S/16 with softmax attention, ImageNet-1K, 300 epochs: the paper has 80.4% top-1 (iViT, Table 2).
_base_ = "./classifier_vit_s16_interactive_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention")))
