# Plain ViT-S/16 with interactive attention, fine-tuned at 448 pixels: the paper has 83.1% top-1 (iViT, Tables 4 and 9).
_base_ = "./classifier_vit_t16_interactive_30e_imagenet448.py"

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_vit_s16_interactive_300e_imagenet.py"

model = dict(backbone=dict(arch="small-16"), head=dict(in_channels=384))
