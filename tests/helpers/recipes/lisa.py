"""LiSA, journal version, appendix A.2. What it leaves to the papers it refers to ([4] DeiT, [6] Swin, [18] PVT, [60]
ConvNeXt) is marked."""

from . import cosine
from .shared import ADAMW, AT_384, COCO_1X, IMAGENET, LENGTH_3X, SEMANTIC_FPN, UPERNET

# Swin: norms, biases and absolute positions do not decay (its classifiers); in detection and segmentation biases do.
_NORMS_AND_BIASES = {"norm", "bias"}

# "Our models are trained with AdamW [76] with a weight decay of 0.05 and a learning rate of 0.0005 / 512 · batch_size
# with a cosine decay scheduler and 20 warm-up epochs. Our isotropic model (LiSANet-I) is trained for 150 epochs and
# hierarchical models are trained for 300 epochs. […] Mixup [77], Cutmix [78], label smoothing [79] and stochastic depth
# [80] […] only for the hierarchical models with a probability of 0.1 and 0.4 for the LiSANet-S and LiSANet-B models […]
# Rand-Augment [81], random erasing [82], and repeated augmentation." Batch, alphas, clipping, weight decay of norms,
# first and last rate, steps of an iteration over all epochs, evaluation: Swin.
_IMAGENET = dict(
    IMAGENET,
    clip=5.0,
    evaluation=["short 256 bicubic", "crop 224"],
    rates=(1e-6, cosine(1e-3, 1e-5, 20 / 300), 1e-5),
    undecayed=_NORMS_AND_BIASES,
    sampler="RepeatAugSampler",
)
# "For ImageNet-21K pre-training, models are trained with AdamW [76] with a weight decay of 0.05 and a base learning
# rate of 4e-3 & batch size 4096 with a cosine decay scheduler and 5 warm-up epochs. The total number of epochs are set
# to 90, and the stochastic depth rate is set to 0.1 & 0.2 for HyLiSANet-S & -B". First and last rate, steps of an
# iteration after the warm-up, no clipping: ConvNeXt.
_IMAGENET21K = dict(ADAMW, lr=4e-3, batch=4096, epochs=90, warmup=5, rates=(4e-9, 4e-3, 1e-6), clip=None)
_IMAGENET21K |= dict(undecayed=_NORMS_AND_BIASES)
# "For ImageNet-1K fine-tuning, models are trained with AdamW [76] with a weight decay of 1e-8 and a base learning rate
# of 5e-5 & batch size 512 with a cosine decay scheduler. The total number of epochs are set to 30, and the stochastic
# depth rate is set to 0.1 & 0.2". No Mixup, no CutMix, last rate, 0.8 of the rate from layer to layer: ConvNeXt's own
# command for its fine-tuning.
_FROM_21K = {
    **_IMAGENET21K,
    **dict(weight_decay=1e-8, lr=5e-5, batch=512, epochs=30, warmup=0, rates=(5e-5, 5e-5, 1e-6)),
    **dict(train_scales={224}, augments={}, head_scale=0.001),
}
# Layers: the stem, two stages, a third one in four (S) or six (B), the last stage; the last norm and the head have the full rate.
_LAYERS_S = {"backbone": {float(f"{0.8**i:.3g}") for i in range(9)}}
_LAYERS_B = {"backbone": {float(f"{0.8**i:.3g}") for i in range(11)}}
_AT_384 = {**ADAMW, **AT_384, "clip": 5.0, "undecayed": {"norm", "bias", "position"}, "drop_path": 0.0}
_AT_384 |= dict(augments={"Mixup": 0.8, "CutMix": 1.0})
# "We use a 1x schedule (12 epochs) with total batch size 16, and follow the same recipe as in [6]. For training, the
# shorter side of the image is resized to 800 pixels while keeping the longer side no more than 1333 pixels. AdamW [76]
# with a weight decay of 0.05 is adopted as an optimizer, and the initial learning rate is set to 0.0001. The stochastic
# depth rate is set to 0.1". Warm-up, steps, flips, norms that do not decay: Swin.
_COCO_1X = {
    **COCO_1X,
    "undecayed": {"norm"},
    "transforms": ["LoadImageFromFile", "LoadAnnotations", "Resize", "RandomFlip", "PackDetInputs"],
    "train_scales": {(1333, 800)},
    "drop_path": 0.1,
}
# "The framework is trained for 80k iterations with a cosine decay scheduler. The stochastic depth rate is set to 0.15
# and we follow the other details proposed in [18]": optimiser (decay of all parameters), batch and scales of PVT.
_SEMANTIC_FPN = dict(SEMANTIC_FPN, warmup=0, decay="CosineAnnealingLR", clip=None, drop_path=0.15)
_SEMANTIC_FPN |= dict(train_scales={(2048, 512), (512, 512)})
# Not in the paper: Swin's.
_UPERNET = {**UPERNET, "undecayed": {"norm"}}
# Not in the paper: Swin's, whose training is multi-scale.
_COCO_3X = {
    **_COCO_1X,
    **LENGTH_3X,
    "transforms": [
        *("LoadImageFromFile", "LoadAnnotations", "RandomFlip", "RandomChoice"),
        *("RandomChoiceResize", "RandomChoiceResize", "RandomCrop", "RandomChoiceResize", "PackDetInputs"),
    ],
    "train_scales": COCO_1X["train_scales"],
    "drop_path": 0.2,
}

RECIPES = {
    "classifier_lisanet_s_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_lisanet_b_300e_imagenet.py": dict(_IMAGENET, drop_path=0.4),
    "classifier_hylisanet_s_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_hylisanet_b_300e_imagenet.py": dict(_IMAGENET, drop_path=0.4),
    **{
        f"classifier_lisanet_{version}i_150e_imagenet.py": dict(
            _IMAGENET,
            epochs=150,
            rates=(1e-6, cosine(1e-3, 1e-5, 20 / 150), 1e-5),
            drop_path=0.0,
            undecayed={"norm", "bias", "position"},
        )
        for version in ("", "v1_")
    },
    "classifier_lisanet_v1_tiny_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_lisanet_v1_tiny_conv_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_lisanet_v1_tiny_uniformer_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_lisanet_v1_small_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_lisanet_v1_base_300e_imagenet.py": dict(_IMAGENET, drop_path=0.4),
    "classifier_lisanet_i_30e_imagenet384.py": _AT_384,
    "classifier_lisanet_v1_i_30e_imagenet384.py": _AT_384,
    "classifier_hylisanet_s_90e_imagenet21k.py": dict(_IMAGENET21K, drop_path=0.1),
    "classifier_hylisanet_b_90e_imagenet21k.py": dict(_IMAGENET21K, drop_path=0.2),
    "classifier_hylisanet_s_in21k_30e_imagenet.py": dict(_FROM_21K, drop_path=0.1, lr_mults=_LAYERS_S),
    "classifier_hylisanet_b_in21k_30e_imagenet.py": dict(_FROM_21K, drop_path=0.2, lr_mults=_LAYERS_B),
    "mask_rcnn_lisanet_s_1x_coco.py": _COCO_1X,
    "mask_rcnn_hylisanet_s_1x_coco.py": _COCO_1X,
    "mask_rcnn_lisanet_v1_small_1x_coco.py": _COCO_1X,
    "mask_rcnn_hylisanet_s_3x_coco.py": _COCO_3X,
    "cascade_mask_rcnn_hylisanet_s_3x_coco.py": _COCO_3X,
    "semantic_fpn_lisanet_s_80k_ade20k.py": _SEMANTIC_FPN,
    "semantic_fpn_hylisanet_s_80k_ade20k.py": _SEMANTIC_FPN,
    "upernet_hylisanet_s_160k_ade20k.py": dict(_UPERNET, drop_path=0.3),
    "upernet_hylisanet_b_160k_ade20k.py": dict(_UPERNET, drop_path=0.4),
}
