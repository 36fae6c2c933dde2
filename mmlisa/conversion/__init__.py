"""Published weights of others, as weights of this package's models."""

from .caformer import convert_caformer
from .conversion import Conversion
from .flatten import convert_flatten
from .inflation import inflate

__all__ = ["Conversion", "convert_caformer", "convert_flatten", "inflate"]
