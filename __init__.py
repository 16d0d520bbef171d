"""Serverless functions in Python on a bundled broker that speaks the Apache Pulsar protocol.

Authors of functions import `Function`, `Context` and the SerDe classes from here, users of topics `Client` or
`AsyncClient`. Names are imported when they are asked for: a function's process must not pay for the client.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from .api.context import Context
    from .api.function import Function
    from .api.serde import IdentitySerDe, PickleSerDe, SerDe
    from .client.blocking import Client
    from .client.client import AsyncClient

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "Context", "Function", "IdentitySerDe", "PickleSerDe", "SerDe"]

_HOMES = {
    "AsyncClient": "client.client",
    "Client": "client.blocking",
    "Context": "api.context",
    "Function": "api.function",
    "IdentitySerDe": "api.serde",
    "PickleSerDe": "api.serde",
    "SerDe": "api.serde",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


class _MovedModules:
    """Finds modules of this package by the names that they had in earlier versions; asked after all other finders."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See importlib."""
        if not name.startswith("magnetar."):
            return None
        from .api.moved_modules import spec_of

        return spec_of(name)


sys.meta_path.append(_MovedModules)
