# Structure-aware attention of LiSA's first version, Eq. (5) with the bias B^a: its paper has 74.2% top-1 (Table 3b).
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="StructureAwareAttention", form="dot", encoding_bias=True)))
