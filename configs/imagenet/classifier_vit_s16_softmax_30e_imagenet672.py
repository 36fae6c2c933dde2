# Plain ViT-S/16 with softmax attention, fine-tuned at 672 pixels: the paper has 83.5% top-1 (iViT, Table 4).
_base_ = "./classifier_vit_s16_interactive_30e_imagenet672.py"

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_vit_s16_softmax_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention")))
