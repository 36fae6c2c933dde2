"""Run models that ``mmlisa export`` wrote. This folder needs NumPy, OpenCV, Pillow and onnxruntime only; copy it into a product.

model = load("detector.onnx")
found = model.predict("street.jpg")
for box, label, score in zip(found.boxes, found.labels, found.scores):
    print(model.classes[label], score, box)
"""

from .images import IMAGE_SUFFIXES, STEPS, InputError, read_image
from .model import FORMAT, Model, load
from .predictions import Prediction, Tiles, check_tiles, decode_mask, encode_mask
