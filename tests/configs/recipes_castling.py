"""Castling-ViT, Sec. 4.1. What it leaves to PicoDet and the other papers it follows is marked."""

# SGD with momentum 0.9 and weight decay 4e-5, 8 x 80 images; the rest is PicoDet's recipe. The learning rate is nowhere given.
_PICODET = dict(
    optimizer="SGD",
    weight_decay=4e-5,
    lr=0.8,
    batch=640,
    epochs=300,
    warmup=300,
    decay="CosineAnnealingLR",
    transforms=[
        "LoadImageFromFile",
        "LoadAnnotations",
        "MinIoURandomCrop",
        "RandomChoice",
        *["Resize"] * 5,
        "RandomFlip",
        "PhotoMetricDistortion",
        "PackDetInputs",
    ],
)
# The batch is resized to 256-384, or 352-480, from the largest of them.
_SIZES = {
    "320": dict(_PICODET, train_scales={(384, 384)}, test_scale=[(320, 320)]),
    "416": dict(_PICODET, train_scales={(480, 480)}, test_scale=[(416, 416)]),
}
_MODELS = [
    *(f"castling_esnet_{size}" for size in ("s_320", "s_416", "m_416", "l_416")),
    *(f"castling_lcnet_{size}" for size in ("s_320", "s_416", "m_416", "l_416")),
    *(f"lcnet_{size}" for size in ("s_320", "m_416")),
    *(
        f"lcnet_vit{kernel}_{size}"
        for kernel in ("", "_mc", "_softmax_kernel", "_cosine", "_relu_s", "_relu_e", "_lin", "_lin_dw")
        for size in ("s_320", "m_416")
    ),
]
# SGD with momentum 0.9, weight decay 2e-5, 1000 epochs on 64 GPUs with 64 (LeViT) or 32 images each; 2.0 after 11 epochs of
# warm-up from 0.01, then x 0.9875 per epoch.
_IMAGENET = dict(
    optimizer="SGD",
    weight_decay=2e-5,
    lr=2.0,
    batch=4096,
    epochs=1000,
    warmup=11,
    decay="ExponentialLR",
    train_scales={224},
)
_IMAGENET_32 = dict(_IMAGENET, batch=2048)
# Mask2Former's recipe.
_MASK2FORMER = dict(
    optimizer="AdamW", weight_decay=0.05, lr=1e-4, batch=16, iterations=160000, clip=0.01, decay="PolyLR"
)
# Not the paper's: Mask R-CNN as Swin's 1x, Semantic FPN as PVT's 80k.
_COCO_1X = dict(optimizer="AdamW", lr=1e-4, weight_decay=0.05, batch=16, epochs=12)
_SEMANTIC_FPN = dict(optimizer="AdamW", lr=1e-4, weight_decay=1e-4, batch=16, iterations=80000)

RECIPES = {
    **{f"picodet_{model}_coco.py": _SIZES[model[-3:]] for model in _MODELS},
    **{f"classifier_castling_levit_{size}_1000e_imagenet.py": _IMAGENET for size in (128, 192, 256, 384)},
    **{
        f"classifier_castling_{model}_1000e_imagenet.py": _IMAGENET_32
        for model in ("mvitv2_t", "mvitv2_s", "mvitv2_b", "deit_t", "deit_b")
    },
    "classifier_castling_levit_256_distilled_1000e_imagenet.py": _IMAGENET,
    "mask2former_castling_vit_b_160k_ade20k.py": _MASK2FORMER,
    "mask_rcnn_castling_lcnet_l_1x_coco.py": _COCO_1X,
    "semantic_fpn_castling_lcnet_l_80k_ade20k.py": _SEMANTIC_FPN,
}
