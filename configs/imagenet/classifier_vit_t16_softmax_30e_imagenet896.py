# Plain ViT-T/16 with softmax attention, fine-tuned at 896 pixels: the paper has no accuracy, for want of memory (iViT, Table 4).
_base_ = "./classifier_vit_t16_interactive_30e_imagenet896.py"

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_vit_t16_softmax_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="SoftmaxAttention")))
