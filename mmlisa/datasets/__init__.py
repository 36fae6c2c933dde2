"""Registered data sets. Each library has a module of its own, so that a training imports only the library it uses."""

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".tif", ".tiff", ".webp")  # formats that OpenCV decodes
