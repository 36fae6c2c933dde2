"""Published weights of others, as weights of this package's models."""

from .caformer import convert_caformer
from .carrying import Carried, carry_over
from .conversion import Conversion
from .families import FAMILIES, Family, recognise
from .flatten import convert_flatten
from .inflation import inflate, inflate_classifier
from .paddle import convert_picodet
from .published import PublishedWeights, convert_published, known_sources, load_pretrained, read_source

__all__ = [
    "FAMILIES",
    "Carried",
    "Conversion",
    "Family",
    "PublishedWeights",
    "carry_over",
    "convert_caformer",
    "convert_flatten",
    "convert_picodet",
    "convert_published",
    "inflate",
    "inflate_classifier",
    "known_sources",
    "load_pretrained",
    "read_source",
    "recognise",
]
