"""Trained models in use: export, the runtime of exported files, predictions on files."""

from .runtime import load, read_images
