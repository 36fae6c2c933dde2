# Plain ViT-S/16 with softmax attention, fine-tuned at 896 pixels: the paper has no accuracy, for want of memory (iViT, Table 4).
_base_ = "./classifier_vit_s16_interactive_30e_imagenet896.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention")))
