"""LiSA, journal version, appendix A.2, video. What it leaves to UniFormer ("we follow the training setup proposed in
[53]") is taken from the code of that paper, and marked."""

# Kinetics-400: AdamW, "0.0001 / 32 x batch_size", weight decay 0.05, cosine, 110 epochs, 10 of warm-up, drop path 0.15
# (S) and 0.3 (B). RandAugment, random erasing, Mixup, CutMix: UniFormer.
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
# Something-Something V2: "0.0002 / 32 x batch_size", 60 epochs, 5 of warm-up; a flip would change the class.
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
    **{f"classifier_lisanet_i_{name}60e_something_v2.py": _SOMETHING for name in _OPERATORS},
}
