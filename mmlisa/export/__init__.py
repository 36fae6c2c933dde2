"""Export: models with their results as ONNX files."""

from .graph import can_be_free
from .library import compare_with_library
from .metadata import describe, final_size
from .whole import EndToEnd, Exportable
from .writing import EXAMPLE, padding_effect, write
