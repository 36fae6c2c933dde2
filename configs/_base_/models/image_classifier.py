# Global average pooling and a classifier with one hidden layer of 4C; a config adds its backbone and the head's in_channels.
model = dict(
    type="ImageClassifier",
    data_preprocessor=dict(
        type="ClsDataPreprocessor",
        num_classes=1000,
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    neck=dict(type="GlobalAveragePooling"),
    head=dict(
        type="mmlisa.MlpClsHead",
        num_classes=1000,
        loss=dict(type="LabelSmoothLoss", label_smooth_val=0.1, mode="original"),
    ),
)
