"""Host weights in, attention replaced: ours, no paper's."""

from . import cosine
from .shared import COCO_1X, IMAGENET, LENGTH_3X

# AdamW 2e-4 at 1024 images, weight decay 0.05, 30 epochs, 5 of them warm-up; the rest is the papers' of the same networks.
_IMAGENET = dict(IMAGENET, lr=2e-4, epochs=30, warmup=5, clip=5.0, drop_path=0.1)
_IMAGENET |= dict(rates=(2e-7, cosine(2e-4, 4e-7, 5 / 30), 4e-7))
# As from the network's own weights, but for a warm-up of 3000 iterations.
_COCO_1X = {key: value for key, value in COCO_1X.items() if key != "train_scales"} | dict(warmup=3000)

RECIPES = {
    "classifier_flatten_swin_t_host_30e_imagenet.py": dict(
        _IMAGENET,
        teacher="swin_tiny_patch4_window7_224.ms_in1k",
        undecayed={"norm", "bias", "table"},
        evaluation=["squash 256x256 bicubic", "crop 224"],
    ),
    "classifier_ivit_t_host_30e_imagenet.py": dict(
        _IMAGENET,
        teacher="caformer_s18.sail_in1k",
        undecayed={"norm", "bias", "scale"},
        evaluation=["short 224 bicubic", "crop 224"],
    ),
    "classifier_hylisanet_s_host_30e_imagenet.py": dict(
        _IMAGENET,
        teacher="caformer_s18.sail_in1k",
        undecayed={"norm", "bias"},
        evaluation=["short 256 bicubic", "crop 224"],
    ),
    "mask_rcnn_flatten_swin_t_host_1x_coco.py": dict(_COCO_1X, drop_path=0.1),
    "mask_rcnn_ivit_t_host_3x_coco.py": {
        **_COCO_1X,
        **LENGTH_3X,
        "undecayed": {"norm", "scale"},
        "drop_path": 0.2,
    },
    "mask_rcnn_hylisanet_s_host_1x_coco.py": {**_COCO_1X, "undecayed": {"norm"}, "drop_path": 0.1},
}
