"""Determines why a triggered message has no output, from the function's status and the input's cursor."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import MagnetarError, RequestRefused
from ...web.client import segment
from ...wire.functions_pb2 import ATLEAST_ONCE, EFFECTIVELY_ONCE, FunctionDetails
from ...wire.message_id import MessageId
from ...wire.printable import summary
from ...wire.topic_name import parse_topic_name
from ..cluster.broker_admin import BrokerAdmin
from .prerequisites import subscription_of

Json = Mapping[str, Any]
RETURNED_NONE = "the function returned None, so there is no output"
NO_OUTPUT_TOPIC = "the message was sent; the function has no output topic, so there is no output to wait for"

_LOOK_EVERY_S = 0.1
_OUTPUT_MAY_LAG_S = 0.5
"""Time limit in seconds for reading an output after the acknowledgement, before which it was stored."""
_RANGE = re.compile(r"\((\d+):(-?\d+)\.\.(\d+):(-?\d+)\]")


@dataclass
class Outcome:
    """Determines the outcome of a message sent to a function.

    Attributes:
        details: function details.
        read_status: returns the status of the function's instances.
        admin: client for the broker's REST interface.
    """

    details: FunctionDetails
    read_status: Callable[[], Awaitable[Json]]
    admin: BrokerAdmin
    _errors_before: int = field(default=0, init=False)

    async def check_runs(self) -> None:
        """Store the current error count, and check that an instance is running.

        Raises:
            RequestRefused: 400, no instance is running, with the error from the status.
        """
        status = await self.read_status()
        self._errors_before = _errors(status)
        self._refuse_if_down(status)

    async def missing(self, topic: str, sent: MessageId) -> str:
        """Return the reason for a missing output, once it is certain that there will be none.

        Args:
            topic: topic that the message was sent to.
            sent: message id.

        Raises:
            RequestRefused: 400, the function raised an error, or none of its instances is running.

        Cancellation: safe.
        """
        # Only with these two guarantees is a message acknowledged after its outputs.
        acks_follow = self.details.processingGuarantees in (ATLEAST_ONCE, EFFECTIVELY_ONCE)
        failed_looks = 0
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            status = await self.read_status()
            has_failed = _errors(status) > self._errors_before
            failed_looks = failed_looks + 1 if has_failed else 0
            is_acked = acks_follow and await self._is_acknowledged(topic, sent)
            if has_failed and (is_acked or failed_looks * _LOOK_EVERY_S >= _OUTPUT_MAY_LAG_S):
                raise RequestRefused(400, f"Function {self.details.name} raised {_newest_error(status)}")
            if is_acked:
                await asyncio.sleep(_OUTPUT_MAY_LAG_S)
                return RETURNED_NONE
            self._refuse_if_down(status)

    def _refuse_if_down(self, status: Json) -> None:
        instances = [one["status"] for one in status["instances"]]
        if any(one["running"] for one in instances):
            return
        error = next((one["error"] for one in instances if one["error"]), "")
        if error:
            raise RequestRefused(400, f"Function {self.details.name} is not running: {summary(error)}")

    async def _is_acknowledged(self, topic: str, sent: MessageId) -> bool:
        part = parse_topic_name(topic)
        name = part.partition_name(sent.partition).text if sent.partition >= 0 and part.partition < 0 else part.text
        try:
            cursors = (await self.admin.internal_stats(name)).get("cursors", {})
            cursor = (
                cursors.get(segment(subscription_of(self.details))) or {}
            )  # subscription names are URL-encoded there
            return covers(cursor, (sent.ledger_id, sent.entry_id))
        except MagnetarError:  # the broker is busy; retried in the next round
            return False


def covers(cursor: Json, position: tuple[int, int]) -> bool:
    """Return whether an entry is acknowledged, according to a cursor in the broker's internal statistics."""
    mark = str(cursor.get("markDeletePosition", "")).partition(":")
    if mark[0].isdigit() and position <= (int(mark[0]), int(mark[2])):
        return True
    for found in _RANGE.finditer(str(cursor.get("individuallyDeletedMessages", ""))):
        start_ledger, start_entry, end_ledger, end_entry = map(int, found.groups())
        if (start_ledger, start_entry) < position <= (end_ledger, end_entry):
            return True
    return False


def _errors(status: Json) -> int:
    found = (one["status"] for one in status["instances"])
    return sum(one["numUserExceptions"] + one["numSystemExceptions"] for one in found)


def _newest_error(status: Json) -> str:
    """Return the last line of the newest traceback: the exception's type and message."""
    records = [
        record
        for one in status["instances"]
        for name in ("latestUserExceptions", "latestSystemExceptions")
        for record in one["status"].get(name, ())
    ]
    newest = max(records, key=lambda record: int(record["timestampMs"]), default={"exceptionString": "an error"})
    return summary(str(newest["exceptionString"]).strip())
