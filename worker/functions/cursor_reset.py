"""Cursor reset: stops all instances of a function, moves its cursors, and starts a new incarnation.

Under EFFECTIVELY_ONCE, moving a cursor alone would have no effect, because redelivered messages are dropped as
duplicates. With a new incarnation in the function's record, they count as new messages. No instance may run between the
move and the new record; otherwise, it would skip the redelivered messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import MagnetarError, RequestRefused
from ...wire.functions_pb2 import STOPPED, FunctionMetaData, FunctionState
from ...wire.topic_name import parse_topic_name
from ..cluster.broker_admin import BrokerAdmin
from .deletion import MayConsume, everybody_may
from .inputs import inputs_of
from .instances import Instances
from .prerequisites import subscription_of
from .service import FunctionName, Functions, states_of

CONSUMERS_GONE_S = 5.0
"""Time limit in seconds for consumers to disappear after the instances have stopped; an instance may hang."""
_POLL_S = 0.1
_ATTEMPTS = 10

EVERYWHERE = ((-1, -1), (2**63 - 1, 2**63 - 1))
"""Positions that are valid in every topic: the first message and the end."""


@dataclass(frozen=True, slots=True)
class Target:
    """New position of a function: a publish time or a message position.

    Attributes:
        timestamp_ms: publish time of the first message to read; None if a position is set.
        position: ledger and entry of the first message to read.
        partition: partition of the position; -1 for a non-partitioned topic.
        topic: the only input to move; None for all inputs.
    """

    timestamp_ms: int | None = None
    position: tuple[int, int] = (0, 0)
    partition: int = -1
    topic: str | None = None


def read_target(body: Any) -> Target:
    """Parse the target of a reset from a request's JSON.

    Raises:
        RequestRefused: there is not exactly one valid target.
    """
    if not isinstance(body, Mapping) or (body.get("timestamp") is None) == (body.get("messageId") is None):
        raise RequestRefused(
            400, 'missing reset position: send {"timestamp": milliseconds} or {"messageId": {ledgerId, entryId}}'
        )
    topic = body.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise RequestRefused(400, "topic must be the name of an input topic")
    if body.get("messageId") is None:
        return Target(timestamp_ms=_whole(body, "timestamp"), topic=topic)
    message_id = body["messageId"]
    if not isinstance(message_id, Mapping):
        raise RequestRefused(400, "messageId must be an object with ledgerId and entryId")
    partition = -1 if message_id.get("partitionIndex") is None else _whole(message_id, "partitionIndex")
    position = (_whole(message_id, "ledgerId"), _whole(message_id, "entryId"))
    return Target(position=position, partition=partition, topic=topic)


def _whole(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    if type(value) is not int or not -1 <= value < 2**63:
        raise RequestRefused(400, f"invalid {name}: expected an integer, got {value!r}")
    return value


class CursorReset:
    """Resets the cursors of functions."""

    def __init__(
        self, functions: Functions, instances: Instances, admin: BrokerAdmin, may_consume: MayConsume = everybody_may
    ) -> None:
        """Create a reset; ``may_consume`` returns whether a function's owner may use its subscription on a topic."""
        self._functions = functions
        self._instances = instances
        self._admin = admin
        self._may_consume = may_consume

    async def run(self, name: FunctionName, target: Target) -> None:
        """Restart a function at a target, and return once its instances have been started.

        Cancellation: the function may remain stopped, as after a crash of this worker; start it and retry the request.

        Raises:
            RequestRefused: the target does not match the inputs, or an instance did not stop.
        """
        before = self._functions.find(name)
        topics = await self._topics(before, target)
        for topic in topics:
            if not await self._may_consume(before, topic):
                raise RequestRefused(403, f"the role that {name} runs as may not consume from {topic}")
        states = states_of(before)
        self._check_unchanged(name, before)
        if any(state != STOPPED for state in states.values()):
            await self._functions.replace_states(name, dict.fromkeys(states, STOPPED))
        stopped = self._functions.find(name)
        moved = 0
        try:
            if not await self._instances.settle(name, stopped):
                raise RequestRefused(503, f"no leader stopped {name}, so its cursors were not moved: retry later")
            # An unresponsive worker may still run an instance, whose consumers are then still connected.
            await self._instances.not_ended(name)
            await self._alone(before)
            for topic in topics:
                self._check_unchanged(name, stopped)
                await self._move(topic, before, target)
                moved += 1
        except MagnetarError as exc:
            done = f"{moved} of {len(topics)} cursors were moved, then: " if moved else ""
            raise RequestRefused(getattr(exc, "status", 500), f"{done}{exc}") from exc
        finally:
            # A reset that moved only some cursors also requires the new incarnation.
            await self._start_again(name, stopped, states, raises_incarnation=moved > 0)
        await self._instances.settle(name, self._functions.find(name))

    def _check_unchanged(self, name: FunctionName, record: FunctionMetaData) -> None:
        """Raise if the function has changed since `record`, because it may be running or may have been recreated."""
        now = self._functions.get(name)
        if now is None or (now.functionUuid, now.version) != (record.functionUuid, record.version):
            raise RequestRefused(
                409,
                f"{name} was changed during the reset, so its cursors were not moved: retry",
            )

    async def _start_again(
        self,
        name: FunctionName,
        stopped: FunctionMetaData,
        states: Mapping[int, FunctionState],
        *,
        raises_incarnation: bool,
    ) -> None:
        """Restart the instances that were running before, except for those changed by other requests meanwhile.

        Raises:
            RequestRefused: the instances remain stopped.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            now = self._functions.get(name)
            if now is None or now.functionUuid != stopped.functionUuid:
                return
            found = states_of(now)
            wanted = {
                number: states.get(number, state) if state == STOPPED else state for number, state in found.items()
            }
            if wanted == found and not raises_incarnation:
                return
            try:
                await self._functions.replace_states(name, wanted, raises_incarnation=raises_incarnation)
                return
            except RequestRefused as exc:
                if exc.status != 400 or not attempts_left:
                    raise RequestRefused(
                        exc.status, f"{name} remains stopped: {exc}; start it and repeat the reset"
                    ) from exc
            await asyncio.sleep(_POLL_S)  # changed by a concurrent request, which this worker reads soon

    async def _alone(self, metadata: FunctionMetaData) -> None:
        """Wait until the inputs have no consumers, because a hung worker may still run an instance that was moved.

        Such an instance would treat messages redelivered by the reset as already processed, and acknowledge them.
        """
        subscription = subscription_of(metadata.functionDetails)
        topics = [part for topic in await self._inputs(metadata) for part in await self._admin.parts(topic)]
        until_s = time.monotonic() + CONSUMERS_GONE_S
        for topic in topics:
            while True:
                consumers = await self._admin.consumers(topic, subscription)
                if not consumers:
                    break
                if time.monotonic() > until_s:
                    raise RequestRefused(
                        409,
                        f"subscription {subscription} of {topic} still has consumer {consumers[0]}, whose worker may"
                        " hang, so no cursors were moved: stop the consumer, or retry once the broker has dropped it",
                    )
                await asyncio.sleep(_POLL_S)

    async def _topics(self, metadata: FunctionMetaData, target: Target) -> list[str]:
        """Return the topics and partitions whose cursors to move."""
        inputs = await self._inputs(metadata)
        chosen = inputs
        given = metadata.functionDetails.source.inputSpecs
        patterns = [text for text, spec in given.items() if spec.isRegexPattern]
        is_everywhere = target.timestamp_ms is not None or target.position in EVERYWHERE
        if target.topic is not None:
            named = parse_topic_name(target.topic).text  # for a topic that a pattern matches, all partitions
            chosen = {topic for topic in inputs if named in (topic, parse_topic_name(topic).base.text)}
            if not chosen:
                raise RequestRefused(
                    400, f"{target.topic} is not an input of the function: expected {', '.join(sorted(given))}"
                )
        elif patterns and not is_everywhere:
            raise RequestRefused(
                400,
                f"message id {target.position[0]}:{target.position[1]} could belong to any topic that matches"
                f" {patterns[0]}: specify the input (topic) or reset by time",
            )
        topics: list[str] = []
        for topic in sorted(chosen):
            topics += await self._admin.parts(topic)
        if is_everywhere:
            return topics
        if target.partition >= 0:
            topics = [topic for topic in topics if parse_topic_name(topic).partition == target.partition]
        if len(topics) != 1:
            raise RequestRefused(
                400,
                f"message id {target.position[0]}:{target.position[1]} could belong to any of {len(topics)} topics or"
                " partitions: specify the input (topic) and its partition (partitionIndex), or reset by time",
            )
        return topics

    async def _inputs(self, metadata: FunctionMetaData) -> set[str]:
        topics = await inputs_of(metadata.functionDetails, self._admin)
        return {parse_topic_name(topic).text for topic in topics}

    async def _move(self, topic: str, metadata: FunctionMetaData, target: Target) -> None:
        subscription = subscription_of(metadata.functionDetails)
        if target.timestamp_ms is not None:
            await self._admin.reset_to_time(topic, subscription, target.timestamp_ms)
        else:
            await self._admin.reset_to_position(topic, subscription, *target.position)
