"""Trained models in use: predictions on files, and export to other runtimes."""
