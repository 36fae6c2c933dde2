"""Export: models with their results as ONNX files and ``torch.export`` programs."""

from .graph import can_be_free
from .metadata import describe, final_size
from .padding import padding_effect
from .whole import EndToEnd, Exportable
from .writing import EXAMPLE, write
