"""Registered data sets. Each library has a module of its own, so that a training imports only the library it uses."""
