"""Necks that no OpenMMLab package has."""

from .pan import CSPPAN, LCPAN
from .simple_pyramid import SimpleFeaturePyramid
