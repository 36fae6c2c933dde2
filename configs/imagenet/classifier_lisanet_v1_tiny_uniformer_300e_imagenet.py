# Uniformer-H-T, the comparator of LiSANet-H-T in the first version, ImageNet-1K, 300 epochs: its paper has 79.7% top-1
# (LiSA first version, Table 8b). UniFormer's blocks in this host: a depthwise 5x5 between pointwise convolutions of C
# channels in the first two stages, softmax attention in the others, and a position embedding in each block.
_base_ = "./classifier_lisanet_v1_tiny_300e_imagenet.py"

model = dict(
    backbone=dict(
        arch=dict(_delete_=True, base="v1-tiny", mixers="CCAA", position="conv", conv_kernel=5, conv_expansion=1),
        attention=dict(type="SoftmaxAttention"),
    )
)
