"""What both kinds of dispatchers have in common: when they run, and what a failure means."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...wire.position import Position
from .entry_reader import EntryReader
from .ports import ConsumerPort, SubscriptionPort

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..storage.topic_log import TopicLog

C = TypeVar("C", bound=ConsumerPort)
StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

READS_PER_TURN = 8
"""Reads of one subscription before others get their turn of the loop."""


class Dispatcher(ABC, Generic[C]):
    """Gives the entries of a subscription to its consumers.

    Attributes:
        kind: the type (SubType) of its consumers.
        active: who gets all entries, under the types that have such a consumer.
    """

    def __init__(
        self, subscription: SubscriptionPort, kind: int, log: TopicLog, config: BrokerConfig, start_task: StartTask
    ):
        self.kind = kind
        self.active: C | None = None
        self._subscription = subscription
        self._log = log
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._reader = EntryReader(log, start_task, self.run)
        self._is_scheduled = False
        self._next = Position(-1, -1)

    @property
    def read_position(self) -> Position:
        """Where reading of what is new goes on."""
        return self._next

    def wake(self) -> None:
        """Go on in the next turn of the loop."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()

    def run(self) -> None:
        """Give out what is there as far as the permits go, up to a bound per turn."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - the boundary of a subscription: others go on, and its consumers do not wait
            self._subscription.fail(error)

    @abstractmethod
    def _run(self) -> None:
        """Give out what is there; a failure closes the consumers."""
