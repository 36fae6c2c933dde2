"""Folders of annotated images: recognition, reading, splitting and checks."""
