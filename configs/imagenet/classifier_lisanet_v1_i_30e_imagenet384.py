# LiSANet-I-T of the first version, fine-tuned at 384 pixels: its paper has 77.4% top-1 (LiSA first version, Table 9).
# The recipe is Swin's.
_base_ = "./classifier_lisanet_i_30e_imagenet384.py"

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_lisanet_v1_i_150e_imagenet.py"

model = dict(backbone=dict(arch="v1-isotropic"))
