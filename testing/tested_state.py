"""The state of a function under test, by key."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..instance.identity import table_of
from ..state.limits import WRITER_BYTES
from ..state.values import Change, Delete, Increment, Put
from ..wire.functions_pb2 import FunctionMetaData
from .cluster import Cluster


class TestedState:
    """Reads and changes state. Values are bytes, counters are ints, and missing keys raise KeyError.

    Reading a key first waits until all sent messages are processed.
    """

    def __init__(self, cluster: Cluster, metadata: FunctionMetaData, settle: Callable[[], None]) -> None:
        """Create the state of a function.

        Args:
            cluster: cluster that stores the state.
            metadata: metadata of the function.
            settle: waits until the function is idle.
        """
        self._cluster = cluster
        self._table = table_of(metadata)
        self._settle = settle
        self._writer = os.urandom(WRITER_BYTES)
        self._sequence = 0

    def get(self, key: str, default: bytes | int | None = None) -> bytes | int | None:
        """Return the value of a key, or ``default``."""
        self._settle()
        value = self._cluster.tables.read(self._table, [key.encode()])[0]
        if value is None:
            return default
        return value.data if value.number is None else value.number

    def __getitem__(self, key: str) -> bytes | int:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: str, value: bytes | str | int) -> None:
        """Set a key, for the function to read; an int creates a counter."""
        name = key.encode()
        if isinstance(value, int):
            self._apply(Delete(name), Increment(name, value))
        else:
            self._apply(Put(name, value.encode() if isinstance(value, str) else value))

    def __delitem__(self, key: str) -> None:
        self._apply(Delete(key.encode()))

    def _apply(self, *changes: Change) -> None:
        self._settle()
        self._sequence += 1
        self._cluster.tables.apply(self._table, self._writer, self._sequence, changes)
