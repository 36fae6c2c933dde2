# PolaFormer-Swin-B at 384 pixels, 30 epochs from the 224-pixel classifier.
_base_ = "./classifier_flatten_swin_b_30e_imagenet384.py"

model = dict(backbone=dict(arch="pola-base-384"))
# Positions of the smaller grid are resized as they are loaded: load_from = "pola_swin_b_in1k.pth"
