# Plain ViT-T/16 with softmax attention, ImageNet-1K, 300 epochs: the paper has 73.0% top-1 (iViT, Table 2).
_base_ = "./classifier_vit_t16_interactive_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention")))
