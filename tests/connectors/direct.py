"""Call a connector without an instance, as an instance's session would."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from magnetar.api.connector import Connector, Position, Record, SinkContext, SourceContext
from magnetar.api.connector_config import read_config
from magnetar.instance.connectors.session import ConnectorSession

from tests.support.waiting import wait_for


class DirectContext(SourceContext, SinkContext):
    """A minimal connector context."""

    def __init__(
        self, instance_id: int = 0, parallelism: int = 1, *, is_exact: bool = False, position: Position = None
    ) -> None:
        self.position = position
        self.name = "public/default/connector"
        self.instance_id = instance_id
        self.parallelism = parallelism
        self.incarnation = "public/default/connector@1"
        self.is_exact = is_exact
        self.logger = logging.getLogger("connector")
        self.state: dict[str, bytes] = {}
        self.metrics: dict[str, float] = {}

    def record_metric(self, name: str, value: float) -> None:
        self.metrics[name] = value

    def secret(self, name: str) -> str | None:
        return None

    def get_state(self, key: str) -> bytes | None:
        return self.state.get(key)

    def put_state(self, key: str, value: str | bytes) -> None:
        self.state[key] = value.encode() if isinstance(value, str) else value

    def is_stopping(self) -> bool:
        return False

    def pause(self, topic: str) -> None:
        raise NotImplementedError

    def resume(self, topic: str) -> None:
        raise NotImplementedError


class Direct:
    """An open connector."""

    def __init__(self, connector: Connector, configs: Mapping[str, Any], context: DirectContext | None = None) -> None:
        self.connector: Any = connector
        self.context = context or DirectContext()
        self.session = ConnectorSession(
            connector, read_config(connector.config, configs), self.context, self.context.logger
        )

    def write(self, records: list[Record]) -> None:
        self.session.call(self.connector.write_batch, records)

    def read(self, count: int, *, acknowledges: bool = False, reads_max: int = 200) -> list[Record]:
        """Read a number of records, and acknowledge all of them or none."""
        found: list[Record] = []
        for _ in range(reads_max):
            records: list[Record] = list(self.session.call(self.connector.read) or ())
            found += records
            if acknowledges:
                self.acknowledge(records)
            if len(found) >= count:
                return found
        raise AssertionError(f"{len(found)} of {count} records came: {found[:3]}")

    def acknowledge(self, records: list[Record]) -> None:
        for record in records:
            if record.acknowledge is not None:
                self.session.call(record.acknowledge)

    def retried(self, times: int) -> str:
        """Wait until a call was retried a number of times, and return the status text."""
        wait_for(lambda: self.session.retries >= times, f"{times} retries")
        return self.session.trouble

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return self.session.call(method, *arguments)

    def close(self) -> None:
        self.session.close()


def records_of(count: int, first: int = 0) -> list[Record]:
    """Return records with distinct keys, properties and positions."""
    return [
        Record(
            f"value {number}".encode(),
            f"key-{number}",
            {"größe": str(number)},
            topic="persistent://public/default/in",
            message_id=f"1:{number}:0",
        )
        for number in range(first, first + count)
    ]
