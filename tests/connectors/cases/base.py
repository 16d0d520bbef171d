"""Base classes of conformance cases: one case for each sink and each source.

The suite finds the cases in the modules of this folder. It runs each in `tests/connectors/test_conformance.py`; what it
does there stands in `tests/connectors/scenarios.py`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pulsar

from tests.connectors.servers.base import RealServer


class Case(ABC):
    """Common base class of source and sink cases.

    Attributes:
        connector: its name, as ``available-sinks`` and ``available-sources`` have it.
        server: what it speaks to; None for files, for libraries that work in this process, and for nothing.
        largest: bytes of the ten large records: the system's limit, at most 1 MB.
        processing_guarantees: that it is created with.
        bad_configs: changes of the configuration (a value of None removes a key), each with a text that the error must
            contain.
        class_name: of a connector that is uploaded, ``module.Class``; `connector` is then the name of the test only.
        package: files of one that is uploaded, by name.
        count: how many records the suite gives this time, beside a bad one; known before `prepare`.
        log_file: of the instance; known when that is started.
        needs_extra: whether it needs an extra beside that of the connector, as a client of the test.
    """

    connector: ClassVar[str]
    server: ClassVar[type[RealServer] | None] = None
    largest: ClassVar[int] = 1_000_000
    processing_guarantees: ClassVar[str] = "ATLEAST_ONCE"
    bad_configs: ClassVar[Sequence[tuple[dict[str, Any], str]]] = ()
    class_name: ClassVar[str] = ""
    package: ClassVar[Mapping[str, str]] = MappingProxyType({})
    needs_extra: ClassVar[bool] = False

    kind: ClassVar[str]
    count: int = 0
    log_file: Path

    def __init__(self, server: Any, directory: Path) -> None:
        """Create an unprepared case.

        Args:
            server: a started one of the class that `server` names, None if it names none.
            directory: an empty one, of this test.
        """
        self.server_process = server
        self.directory = directory

    def prepare(self) -> None:  # noqa: B027  most have nothing to do
        """Create tables, queues or subscribers; called once, before the instance is started."""

    @abstractmethod
    def configs(self) -> dict[str, object]:
        """Return the connector's configuration."""

    @property
    def has_target(self) -> bool:
        """Return whether the other system can become unavailable."""
        return self.server is not None

    def take_away(self) -> None:
        """Make the other system unavailable in mid-stream; by default its process is killed."""
        self.server_process.kill()

    def bring_back(self) -> None:
        """Make the other system available again, with its data."""
        before = self.server_process.pid
        self.server_process.start()
        assert self.server_process.pid != before

    def close(self) -> None:  # noqa: B027  most have nothing to do
        """Close the clients; called once, whatever happened before."""


class SinkCase(Case):
    """The case of a sink.

    Attributes:
        is_exact: whether a record that is written again is there once.
        is_ordered: whether records are in the order of the topic, looking at the first of each.
    """

    kind = "sink"
    is_exact: ClassVar[bool] = False
    is_ordered: ClassVar[bool] = False

    def value(self, number: int, text: str) -> bytes:
        """Return a record's payload."""
        return json.dumps({"id": number, "text": text, "nothing": None}, ensure_ascii=False).encode()

    def key(self, number: int) -> str | None:
        """Return a record's key, or None."""
        return None if number % 10 == 0 else f"schlüssel-{number}"

    def bad_record(self) -> bytes | None:
        """Return a payload that the sink rejects, or None."""
        return None

    @abstractmethod
    def read_back(self) -> list[tuple[int, str]]:
        """Return id and text of all written records, read by a client other than the connector's."""


class SourceCase(Case):
    """The case of a source.

    Attributes:
        is_exact: whether each record comes once, whatever is killed.
        is_ordered: whether records come in the order in which they were fed, looking at the first of each.
        batch: of a batch source: its ``batchSourceConfig``.
    """

    kind = "source"
    batch: ClassVar[Mapping[str, Any]] = {}
    is_exact: ClassVar[bool] = False
    is_ordered: ClassVar[bool] = True

    @abstractmethod
    def feed(self, records: list[tuple[int, str]]) -> None:
        """Write records to the other system durably, with a client other than the connector's.

        Called several times, from a thread, and only while the other system is there.
        """

    def feed_bad(self) -> None:
        """Write data that is no valid record; all others must still arrive. Does nothing by default."""

    @abstractmethod
    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        """Return id and text of a message received by the official client."""
