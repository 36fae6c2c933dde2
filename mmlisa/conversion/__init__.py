"""Conversion of third-party published weights: ``read``, ``recognise``, ``rename`` and ``match``, in this order."""

from .inflation import inflate, inflate_classifier
from .matching import Match, match
from .networks import known_networks, recognise
from .published import PublishedWeights, convert_published
from .reading import known_sources, read
from .renaming import Renamed, rename
