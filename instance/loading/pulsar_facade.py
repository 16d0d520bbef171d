"""Provide the module ``pulsar`` of user code: classes of Pulsar Functions, and the official client on demand.

Design: most functions only use ``from pulsar import Function``. Loading the official client for that costs 20 MB and a
tenth of a second per instance, and it may not be installed. So user code gets our own module under that name, with the
classes for functions. It loads the official client at the first access to another name.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ...api.context import Context
from ...api.function import Function
from ...api.serde import IdentitySerDe, JsonSerDe, PickleSerDe, SerDe
from ..publish_request import CompressionType, Result

NAME = "pulsar"
_SUBMODULES: dict[str, dict[str, object]] = {
    "pulsar.functions": {},
    "pulsar.functions.function": {"Function": Function},
    "pulsar.functions.context": {"Context": Context},
    "pulsar.functions.serde": {
        "SerDe": SerDe, "IdentitySerDe": IdentitySerDe, "JsonSerDe": JsonSerDe, "PickleSerDe": PickleSerDe,
    },
}  # fmt: skip
_NAMES: dict[str, object] = {
    "Function": Function,
    "Context": Context,
    "SerDe": SerDe,
    "IdentitySerDe": IdentitySerDe,
    "JsonSerDe": JsonSerDe,
    "PickleSerDe": PickleSerDe,
    "Result": Result,
    "CompressionType": CompressionType,
}


class PulsarFacade(ModuleType):
    """The module ``pulsar`` as seen by user code."""

    def __init__(self) -> None:
        """Create the module without loading the official client."""
        super().__init__(NAME, "Pulsar Functions' classes; anything else comes from the official client.")
        self.__path__: list[str] = []
        vars(self).update(_NAMES)
        self.modules: dict[str, ModuleType] = {NAME: self}
        for name, content in _SUBMODULES.items():
            module = ModuleType(name)
            vars(module).update(content)
            if name == "pulsar.functions":
                module.__path__ = []
            self.modules[name] = module
            parent, _, tail = name.rpartition(".")
            setattr(self.modules[parent], tail, module)

    def __getattr__(self, name: str) -> Any:
        """Look up a name in the official client."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.official(name), name)

    def official(self, wanted: str) -> ModuleType:
        """Import the official client's module.

        Raises:
            AttributeError: the official client is not installed.
        """
        with _without_facade():
            try:
                return importlib.import_module(NAME)
            except ModuleNotFoundError as error:
                if error.name not in (NAME, "_pulsar"):
                    raise
        raise AttributeError(
            f"module 'pulsar' has no attribute {wanted!r}: Magnetar provides only {', '.join(_NAMES)};"
            " install the official client for everything else: pip install pulsar-client"
        )


@contextmanager
def _without_facade() -> Iterator[None]:
    """Let the import system find the official client, during the import and afterwards."""
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if (name == NAME or name.startswith(NAME + ".")) and _is_ours(module)
    }
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        if NAME not in sys.modules:
            sys.modules.update(hidden)


def _is_ours(module: ModuleType) -> bool:
    return isinstance(module, PulsarFacade) or (
        module.__name__ in _SUBMODULES and getattr(module, "__file__", None) is None
    )


class _Submodules:
    """Finds ``pulsar.schema`` and other submodules in the official client, which it loads."""

    def __init__(self, facade: PulsarFacade) -> None:
        self._facade = facade

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a submodule of the official client, or None; called by importlib."""
        if not fullname.startswith(NAME + ".") or not _is_ours(sys.modules.get(NAME, sys)):
            return None
        try:
            self._facade.official(fullname)
        except AttributeError as error:
            raise ModuleNotFoundError(str(error), name=fullname) from None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]  # duck typing

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the official client's module."""
        return importlib.import_module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: importing the official client has executed the module."""


def install() -> None:
    """Replace ``pulsar`` in the whole process, which is valid only if all code is user code."""
    facade = PulsarFacade()
    sys.modules.update(facade.modules)
    sys.meta_path.insert(0, _Submodules(facade))
