"""Attention, backbones and heads; nothing is imported here, so that a backbone needs only what it imports itself."""
