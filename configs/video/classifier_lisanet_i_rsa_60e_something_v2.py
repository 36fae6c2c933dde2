# Relational self-attention in place of LiSA, Something-Something V2: the paper has 34.1% top-1 (LiSA journal version,
# Table 14). Evaluated in a cheaper order: a quarter fewer FLOPs than printed. Blocks are recomputed in the backward pass,
# because two clips keep more than 12 GiB otherwise.
_base_ = "./classifier_lisanet_i_60e_something_v2.py"

model = dict(backbone=dict(attention=dict(type="RelationalSelfAttention"), with_cp=True))
