# The image classifier on clips: global average pooling over time. A config adds its backbone and the head's channels.
_base_ = "./image_classifier.py"

model = dict(
    type="mmlisa.VideoClassifier",
    data_preprocessor=dict(type="mmlisa.VideoDataPreprocessor"),
    neck=dict(dim=3),
)
