"""LiSA, journal version, appendix A.2, video. What it leaves to UniFormer ("we follow the training setup proposed in
[53]") is taken from the code of that paper, and marked."""

# Kinetics-400: "trained with AdamW [76] using a weight decay of 0.05 and 0.0001 / 32 · batch_size with a cosine decay
# scheduler and 10 warm-up epochs. The total number of epochs are set to 110, and the stochastic depth rate is set to
# 0.15 & 0.3". RandAugment, random erasing, Mixup, CutMix: UniFormer.
_KINETICS = dict(
    optimizer="AdamW",
    lr=1e-4,
    batch=32,
    weight_decay=0.05,
    clip=None,
    epochs=110,
    warmup=10,
    decay="CosineAnnealingLR",
    train_scales={256, 224},
    evaluation=["short 256 bilinear", "crop 224"],
    undecayed={"norm", "bias"},
    augments={"Mixup": 0.8, "CutMix": 1.0},
    transforms=[
        "LoadClips", "PerFrame", "ResizeEdge", "RandomResizedCrop", "RandomFlip", "RandAugment", "RandomErasing", "PackClips",
    ],
)  # fmt: skip
# Something-Something V2: "a weight decay of 0.05 and 0.0002 / 32 · batch_size with a cosine decay scheduler and 5
# warm-up epochs. The total number of epochs is set to 60"; a flip would change the class.
_SOMETHING = dict(
    _KINETICS,
    lr=2e-4,
    epochs=60,
    warmup=5,
    drop_path=0.0,
    transforms=[step for step in _KINETICS["transforms"] if step != "RandomFlip"],
)
_OPERATORS = ("", "softmax_", "softmax_rpe_", "depthwise_", "global_filter_", "lambda_", "rsa_")
RECIPES = {
    "classifier_hylisanet_s_110e_kinetics400.py": dict(_KINETICS, drop_path=0.15),
    "classifier_hylisanet_b_110e_kinetics400.py": dict(_KINETICS, drop_path=0.3),
    "classifier_lisanet_v1_i_60e_something_v2.py": _SOMETHING,
    **{f"classifier_lisanet_i_{name}60e_something_v2.py": _SOMETHING for name in _OPERATORS},
}
