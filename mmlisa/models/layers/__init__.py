"""Layers that backbones share."""
