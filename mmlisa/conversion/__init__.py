"""Conversion of third-party published weights: ``read`` and ``match``, which also recognises and renames them."""

from .matching import Match, inflate, match
from .published import PublishedWeights, convert_published
from .reading import known_sources, read
from .renaming import recognise, rename_heads
