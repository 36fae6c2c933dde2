"""Necks that no OpenMMLab package has."""
