# Plain ViT-T/8 with softmax attention, ImageNet-1K, 300 epochs: the paper has 77.2% top-1 (iViT, Table 3).
_base_ = "./classifier_vit_t8_interactive_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention")))
