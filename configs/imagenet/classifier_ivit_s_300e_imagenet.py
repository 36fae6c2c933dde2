# iViT-S, ImageNet-1K, 300 epochs: the paper has 84.5% top-1 (iViT, Tables 5 and 9). The layout and the test crop of 1.0
# are CAFormer's. The paper's network has 1.79 M parameters more than its equations give, which is unexplained.
_base_ = "./classifier_ivit_t_300e_imagenet.py"

model = dict(backbone=dict(arch="small", drop_path_rate=0.3))
