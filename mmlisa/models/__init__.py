"""Operators, backbones, necks and heads."""
