"""The context passed to connectors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ...api.connector import Position, SinkContext, SourceContext
from ...api.context import NO_STATE_STORE
from ...errors import StateUnavailable
from ...wire.functions_pb2 import EFFECTIVELY_ONCE
from ..identity import table_of
from ..spec import InstanceSpec
from ..state.session import StateSession
from ..stats import InstanceStats
from .pauses import Pauses


class InstanceContext(SourceContext, SinkContext):
    """The context of a connector instance."""

    def __init__(
        self,
        spec: InstanceSpec,
        stats: InstanceStats,
        logger: logging.Logger,
        secrets: Mapping[str, str],
        is_stopping: Callable[[], bool],
    ) -> None:
        """Create a context whose `state`, `position` and, for a sink, `pauses` are set later."""
        self.position: Position = None
        self.name = spec.function_name
        self.instance_id = spec.instance_id
        self.parallelism = max(spec.details.parallelism, 1)
        self.incarnation = table_of(spec.metadata)
        self.is_exact = spec.details.processingGuarantees == EFFECTIVELY_ONCE
        self.logger = logger
        self.state: StateSession | None = None
        self.pauses: Pauses | None = None
        self._stats = stats
        stats.metrics_of_code.offer(self)
        self._secrets = secrets
        self._is_stopping = is_stopping

    def record_metric(self, name: str, value: float) -> None:  # noqa: D102  documented in ConnectorContext
        if refusal := self._stats.record(name, value):
            self.logger.error("%s", refusal)

    def secret(self, name: str) -> str | None:  # noqa: D102
        return self._secrets.get(name)

    def get_state(self, key: str) -> bytes | None:  # noqa: D102
        return self._table(key).get_state(key)

    def put_state(self, key: str, value: str | bytes) -> None:  # noqa: D102
        self._table(key).put_state(key, value)

    def _table(self, key: str) -> StateSession:
        if self.state is None:
            raise StateUnavailable(f"state {key!r}: {NO_STATE_STORE}")
        return self.state

    def is_stopping(self) -> bool:  # noqa: D102
        return self._is_stopping()

    def pause(self, topic: str) -> None:  # noqa: D102
        assert self.pauses is not None
        self.pauses.pause(topic)

    def resume(self, topic: str) -> None:  # noqa: D102
        assert self.pauses is not None
        self.pauses.resume(topic)
