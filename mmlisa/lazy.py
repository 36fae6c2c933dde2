"""Packages whose names are imported at their first use (PEP 562)."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_at_first_use(
    package: str, files: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package; ``files`` has the names in each file, as words of a text.

    A file that is called as one of its names is meant itself: importing it puts the module into the name's place.
    """
    modules = {name: f"{package}.{file}" for file, names in files.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        module = import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    return list(modules), find, lambda: [*vars(sys.modules[package]), *modules]
