"""Additions to MMEngine's training: configs, runners, hooks, optimizers."""
