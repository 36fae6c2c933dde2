# PolaFormer-Swin-B at 384 pixels, 30 epochs from the 224-pixel classifier.
_base_ = "./classifier_flatten_swin_b_30e_imagenet384.py"

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_pola_swin_b_300e_imagenet.py"

model = dict(backbone=dict(arch="pola-base-384"))
