"""Predictions of trained models: on pictures, on tiles, and faster on a CPU."""
