# ADE20K, and with tools/test.py --tta at six scales of (2048, 512), each also flipped: the multi-scale test of Swin and ConvNeXt.
_base_ = "./ade20k.py"

tta_model = dict(type="SegTTAModel")
tta_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(
        type="TestTimeAug",
        transforms=[
            [
                dict(type="Resize", scale=(int(2048 * r), int(512 * r)), keep_ratio=True)
                for r in (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
            ],
            [dict(type="RandomFlip", prob=0.0), dict(type="RandomFlip", prob=1.0)],
            [dict(type="LoadAnnotations", reduce_zero_label=True)],
            [dict(type="PackSegInputs")],
        ],
    ),
]
