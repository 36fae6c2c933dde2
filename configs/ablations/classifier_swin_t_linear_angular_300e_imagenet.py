# Swin-T with linear angular attention in its first two stages: FLatten, Table 3b. The operator is Castling-ViT's
# whole module, with its convolution of 9 taps and the norm of the sum; FLatten does not say which parts it compares.
_base_ = "../imagenet/classifier_flatten_swin_t_300e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="LinearAngularAttention")))
