# Plain ViT-T/16 with interactive attention, fine-tuned at 896 pixels: the paper has 79.4% top-1 (iViT, Tables 4 and 9).
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_896.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    # The positions stay those of 224 pixels, and are interpolated in the network.
    backbone=dict(type="mmlisa.InteractiveViT", arch="tiny-16", drop_path_rate=0.1),
    head=dict(type="LinearClsHead", in_channels=192),
)
optim_wrapper = dict(optimizer=dict(lr=5e-6), clip_grad=None)
# The whole classifier: load_from = "vit_t16_interactive_in1k.pth"
