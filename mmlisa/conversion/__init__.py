"""Conversion of third-party published weights to this package's models."""

from .classifiers import Conversion, convert_classifier
from .families import FAMILIES, Family, recognise
from .inflation import inflate, inflate_classifier
from .matching import Carried, carry_over
from .paddle import convert_picodet
from .published import PublishedWeights, convert_published, known_sources, read_source
