"""Run models that ``mmlisa export`` wrote. This folder needs NumPy, OpenCV, Pillow and onnxruntime or OpenVINO only; copy it into
a product.

model = load("detector.onnx")
found = model.predict("street.jpg")
for box, label, score in zip(found.boxes, found.labels, found.scores):
    print(model.classes[label], score, box)
"""

from .errors import InputError
from .masks import Prediction, decode_mask, encode_mask
from .model import FORMAT, Model, load
from .steps import IMAGE_SUFFIXES, STEPS, VIDEO_SUFFIXES, read_image
from .tiles import Tiles, check_tiles
