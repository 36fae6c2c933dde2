"""Castling-ViT, Sec. 4.1. What it leaves to PicoDet and the other papers it follows is marked."""

from .shared import DEIT_AUGMENTATION

# "For the detection task, we adopt SGD optimizer with momentum 0.9 and weight decay 4e-5 to train models on COCO. All
# models are trained on 8 V100 GPUs with each card having 80 batch sizes following PicoDet's training recipe [70]"; that
# recipe is PaddleDetection's: 300 epochs, a cosine after 300 iterations of warm-up from a tenth; batch norms do not
# decay, except in CSP-PAN and in what LC-PAN shares with it; training draws its interpolation, the test's is bicubic;
# the average starts again at 40, 80, …, 280 epochs (C. Sec. 4.1) and so ends at a momentum of 9 / (10 + 20 epochs). The
# rate is nowhere given.
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
# "For the classification task, we use a SGD optimizer with 0.9 momentum and 2 x 10^-5 weight decay to train ViTs for
# 1000 epochs using 64 V100 GPUs, with each card having 64 (LeViT) or 32 (MViTv2/DeiT) batch sizes. The learning rate is
# 2.0 with first 11 epochs warm-up starting from 0.01 and decays by a factor of 0.9875 per epoch". No parameter is
# exempted from the decay. Augmentation and stochastic depth, which the paper does not name: LeViT's, DeiT's and
# MViTv2's code.
_IMAGENET = dict(
    DEIT_AUGMENTATION,
    optimizer="SGD",
    weight_decay=2e-5,
    lr=2.0,
    batch=64 * 64,
    epochs=1000,
    warmup=11,
    decay="ExponentialLR",
    rates=(0.01, 2.0, 2.0 * 0.9875**989),
    clip=None,
    undecayed=set(),
    evaluation=["short 256 bicubic", "crop 224"],
)
_IMAGENET_32 = dict(_IMAGENET, batch=64 * 32)
_DROP_PATHS = {"levit_384": 0.1, "deit_t": 0.1, "deit_b": 0.1, "mvitv2_t": 0.1, "mvitv2_s": 0.1, "mvitv2_b": 0.3}
# "Also, we follow LeViT's training recipe [24] to pretrain backbones on ImageNet". LeViT's code: "--opt adamw", "--lr
# 5e-4" per 512 images, "--batch-size 256" on 8 GPUs, "--weight-decay 0.025", "--clip-grad 0.01 --clip-mode agc",
# "--epochs 1000", "--warmup-epochs 5", "--warmup-lr 1e-6", "--min-lr 1e-5", "--model-ema-decay 0.99996",
# repeated_aug=True, "--teacher-model regnety_160", "--distillation-type hard"; timm's AdamW spares what has one axis.
_LEVIT = dict(
    _IMAGENET,
    optimizer="AdamW",
    weight_decay=0.025,
    lr=5e-4 * 2048 / 512,
    batch=2048,
    warmup=5,
    decay="CosineAnnealingLR",
    rates=(1e-6, 5e-4 * 2048 / 512, 1e-5),
    clip=("adaptive", 0.01),
    undecayed={"norm", "bias"},
    ema=("ExponentialMovingAverage", 4e-5),
    sampler="RepeatAugSampler",
    teacher="regnety_160.deit_in1k",
    drop_path=0.0,
)
# "For the segmentation task, we follow Mask2former's training recipe [11] to train models on ADE20K". Mask2Former:
# "initial learning rate of 0.0001 and a weight decay of 0.05", a tenth of the rate in the backbone, 16 images, clipping
# at 0.01; norms, embeddings and positions do not decay. Its config of large backbones on ADE20K: "MIN_SIZE_TRAIN [int(x
# * 0.1 * 640) for x in range(5, 21)]", "MAX_SIZE_TRAIN 2560", "SIZE (640, 640)", "SINGLE_CATEGORY_MAX_AREA 1.0",
# "MIN_SIZE_TEST 640", "MAX_SIZE_TEST 2560".
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
    train_scales={int(x * 0.1 * 640) for x in range(5, 21)} | {(640, 640)},
    max_size=2560,
    class_share=1.0,
    evaluation=["fit 2560x640 bilinear"],
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
        f"classifier_castling_{model}_{distilled}1000e_imagenet.py": dict(
            _IMAGENET if "levit" in model else _IMAGENET_32,
            drop_path=_DROP_PATHS.get(model, 0.0),
            teacher="caformer_b36.sail_in1k" if distilled else None,  # "a teacher model with a 85.5% accuracy"
        )
        for model in _NETWORKS
        for distilled in ("", "distilled_")
    },
    **{
        f"classifier_castling_{backbone}_{size}_1000e_imagenet.py": _LEVIT
        for backbone in ("lcnet", "esnet")
        for size in "sml"
    },
    "mask2former_vit_b_160k_ade20k.py": _MASK2FORMER,
    "mask2former_castling_vit_b_160k_ade20k.py": _MASK2FORMER,
    # "ViT backbones are pretrained following MAE [25] if specified".
    "mask2former_vit_b_mae_160k_ade20k.py": _MASK2FORMER,
    "mask2former_castling_vit_b_mae_160k_ade20k.py": _MASK2FORMER,
    "mask_rcnn_castling_lcnet_l_1x_coco.py": _COCO_1X,
    "semantic_fpn_castling_lcnet_l_80k_ade20k.py": _SEMANTIC_FPN,
}
