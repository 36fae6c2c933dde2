"""Castling-ViT, Sec. 4.1. What it leaves to PicoDet and the other papers it follows is marked."""

# SGD with momentum 0.9 and weight decay 4e-5, 8 x 80 images; the rest is PicoDet's recipe, from PaddleDetection: batch norms do
# not decay, except in CSP-PAN and in what LC-PAN shares with it; training draws its interpolation, the test's is bicubic; the
# average starts again at 40, 80, …, 280 epochs (C. Sec. 4.1) and so ends at a momentum of 9 / (10 + 20 epochs). The rate is
# nowhere given.
_PICODET = dict(
    optimizer="SGD",
    weight_decay=4e-5,
    lr=0.8,
    batch=640,
    epochs=300,
    warmup=300,
    decay="CosineAnnealingLR",
    rates=(0.08, 0.8, 0.0),
    clip=None,
    ema=("ThresholdEMA", 0.00245),
    # PaddleDetection's: nms_top_k, keep_top_k, score_threshold, nms_threshold.
    boxes=(1000, 100, 0.025, 0.6),
    interpolations={"nearest", "bilinear", "area", "bicubic", "lanczos"},
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
    "320": dict(_PICODET, batch_scales=(256, 384), train_scales={(384, 384)}, evaluation=["squash 320x320 bicubic"]),
    "416": dict(_PICODET, batch_scales=(352, 480), train_scales={(480, 480)}, evaluation=["squash 416x416 bicubic"]),
}
_MODELS = [
    *(f"castling_esnet_{size}" for size in ("s_320", "s_416", "m_416", "l_416")),
    *(f"castling_lcnet_{size}" for size in ("s_320", "s_416", "m_416", "l_416")),
    *(f"lcnet_{size}" for size in ("s_320", "s_416", "m_416")),
    *(f"lcnet_vit{kernel}_s_416" for kernel in ("", "_mc", "_softmax_kernel", "_cosine", "_relu_e")),
    *(
        f"lcnet_vit{kernel}_{size}"
        for kernel in ("", "_mc", "_softmax_kernel", "_cosine", "_relu_s", "_relu_e", "_lin", "_lin_dw")
        for size in ("s_320", "m_416")
    ),
]
# SGD with momentum 0.9, weight decay 2e-5, 1000 epochs on 64 GPUs with 64 (LeViT) or 32 images each; 2.0 after 11 epochs of
# warm-up from 0.01, then x 0.9875 per epoch; all parameters decay, as none are exempted. Augmentation: LeViT, DeiT and MViTv2.
_IMAGENET = dict(
    optimizer="SGD",
    weight_decay=2e-5,
    lr=2.0,
    batch=4096,
    epochs=1000,
    warmup=11,
    decay="ExponentialLR",
    rates=(0.01, 2.0, 2.0 * 0.9875**989),
    clip=None,
    undecayed=set(),
    train_scales={224},
    evaluation=["short 256 bicubic", "crop 224"],
    augments={"Mixup": 0.8, "CutMix": 1.0},
    transforms=["LoadImageFromFile", "RandomResizedCrop", "RandomFlip", "RandAugment", "RandomErasing", "PackInputs"],
)
_IMAGENET_32 = dict(_IMAGENET, batch=2048)
# Mask2Former's recipe: a tenth of the rate in the backbone; norms, embeddings and positions do not decay.
_MASK2FORMER = dict(
    optimizer="AdamW",
    weight_decay=0.05,
    lr=1e-4,
    batch=16,
    iterations=160000,
    clip=0.01,
    decay="PolyLR",
    power=0.9,
    rates=(1e-4, 1e-4, 0.0),
    undecayed={"norm", "embedding", "position", "token"},
    lr_mults={"backbone": {0.1}},
)
# Not the paper's: Mask R-CNN as Swin's 1x, Semantic FPN as PVT's 80k.
_COCO_1X = dict(optimizer="AdamW", lr=1e-4, weight_decay=0.05, batch=16, epochs=12, undecayed={"norm"})
_SEMANTIC_FPN = dict(optimizer="AdamW", lr=1e-4, weight_decay=1e-4, batch=16, iterations=80000, undecayed=set())
_UNDECAYED = {"esnet": {"norm"}, "lcnet": {"norm", "fusing neck norm"}}
_NETWORKS = ("levit_128", "levit_192", "levit_256", "levit_384", "mvitv2_t", "mvitv2_s", "mvitv2_b", "deit_t", "deit_b")

RECIPES = {
    **{
        f"picodet_{model}_coco.py": dict(
            _SIZES[model[-3:]], undecayed=_UNDECAYED["esnet" if "esnet" in model else "lcnet"]
        )
        for model in _MODELS
    },
    **{
        f"classifier_castling_{model}_{distilled}1000e_imagenet.py": _IMAGENET if "levit" in model else _IMAGENET_32
        for model in _NETWORKS
        for distilled in ("", "distilled_")
    },
    # PicoDet's backbones are pretrained by "LeViT's recipe".
    **{
        f"classifier_castling_{backbone}_{size}_1000e_imagenet.py": _IMAGENET
        for backbone in ("lcnet", "esnet")
        for size in "sml"
    },
    "mask2former_vit_b_160k_ade20k.py": _MASK2FORMER,
    "mask2former_castling_vit_b_160k_ade20k.py": _MASK2FORMER,
    "mask_rcnn_castling_lcnet_l_1x_coco.py": _COCO_1X,
    "semantic_fpn_castling_lcnet_l_80k_ade20k.py": _SEMANTIC_FPN,
}
