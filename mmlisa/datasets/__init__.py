"""Datasets and transforms. Each library has a module of its own, so that a training imports only the library it uses."""
