# Plain ViT-S/16 with interactive attention, fine-tuned at 672 pixels: the paper has 83.5% top-1 (iViT, Tables 4 and 9).
_base_ = "./classifier_vit_t16_interactive_30e_imagenet672.py"

model = dict(backbone=dict(arch="small-16"), head=dict(in_channels=384))
