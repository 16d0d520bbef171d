"""The context of an async function: one object for all calls, each of which sees its own message and state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import get_ident
from typing import Any

from ..api.serde import SerDe
from ..client.consumers.received import ReceivedEntry
from ..errors import ClosedError, InvalidConfig
from .async_calls import OneCall, branch_of, current_call
from .function_context import FunctionContext, Outside
from .spec import InstanceSpec
from .state.session import StateSession, outside_of_call
from .stats import InstanceStats


class CallContext(FunctionContext):
    """Context whose current message is the calling task's.

    Attributes:
        session: the function's state, or None without a state store.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        stats: InstanceStats,
        outside: Outside,
        logger: logging.Logger,
        make_serde: Callable[[str], SerDe],
        state: StateSession | None = None,
    ) -> None:
        """Create the context on the function's thread, with the arguments of `FunctionContext`."""
        super().__init__(spec, stats, outside, logger, make_serde)
        self.session = state
        self._thread = get_ident()
        if state is not None:
            state.begin()  # permanently, because this class decides which calls are accepted

    def leave(self) -> None:
        """Do nothing: each call identifies its own message."""

    def _call(self) -> OneCall | None:
        """Return the current task's call, or None if it has ended or the task has none."""
        call = current_call()
        return None if call is None or call.is_over or get_ident() != self._thread else call

    def _message(self) -> tuple[ReceivedEntry, int]:
        call = self._call()
        if call is None:
            raise ClosedError(outside_of_call("get_…", "the message is available only while it is processed"))
        return call.unit.locate(call.position)

    def _state(self, method: str) -> StateSession:
        call = self._call()
        if call is None:
            raise InvalidConfig(outside_of_call(method, "state changes belong to the message being processed"))
        if call.state is None:
            assert self.session is not None
            call.state = branch_of(self.session)
        return call.state

    def incr_counter(self, key: str, amount: int) -> None:  # noqa: D102  documented in Context
        if self.session is None:
            super().incr_counter(key, amount)
        self._state("incr_counter").incr_counter(key, amount)

    def get_counter(self, key: str) -> int:  # noqa: D102
        return super().get_counter(key) if self.session is None else self._state("get_counter").get_counter(key)

    def del_counter(self, key: str) -> None:  # noqa: D102
        if self.session is None:
            super().del_counter(key)
        self._state("del_counter").delete_state(key)

    def put_state(self, key: str, value: Any) -> None:  # noqa: D102
        if self.session is None:
            super().put_state(key, value)
        self._state("put_state").put_state(key, value)

    def get_state(self, key: str) -> bytes | None:  # noqa: D102
        return super().get_state(key) if self.session is None else self._state("get_state").get_state(key)

    def delete_state(self, key: str) -> None:  # noqa: D102
        if self.session is None:
            super().delete_state(key)
        self._state("delete_state").delete_state(key)
