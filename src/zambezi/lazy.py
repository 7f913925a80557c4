"""Packages that import a module when one of its names is first used.

A command or a program that needs one part of a package does not wait for the import of the others: `zambezi pub` needs
a client and no broker, and reads no configuration of a server.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # not from `typing`, whose import would take longer than that of everything here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package. `homes` has the module of each public name, relative to the package."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # Python asks for each name once
        return value

    return find
