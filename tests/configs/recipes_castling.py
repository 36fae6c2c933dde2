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
        "Resize",
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
RECIPES = {f"picodet_{model}_coco.py": _SIZES[model[-3:]] for model in _MODELS}
