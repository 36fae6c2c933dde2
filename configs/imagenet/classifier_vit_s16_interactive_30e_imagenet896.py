# Plain ViT-S/16 with interactive attention, fine-tuned at 896 pixels: the paper has 83.7% top-1 (iViT, Tables 4 and 9).
_base_ = "./classifier_vit_t16_interactive_30e_imagenet896.py"

model = dict(backbone=dict(arch="small-16"), head=dict(in_channels=384))
