# Structure-aware attention, Eq. (9): LiSA, Table 3b.
_base_ = "../imagenet/classifier_lisanet_i_150e_imagenet.py"

model = dict(backbone=dict(attention=dict(type="StructureAwareAttention", form="weights")))
