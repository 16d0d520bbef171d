"""Policies of single topics that this broker obeys; they hold for all partitions of a topic.

A further one needs a line in `_POLICIES`, its typed reading in `broker/policies/policies.py`, and to be taken out of
`refused_topic_policies`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, done, not_supported, nothing
from ....wire.topic_name import TopicName
from ..bodies import as_bool, as_int
from ..call import Call
from ..routing import Handler, Routes
from .lookup import exists, not_found

_T = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


@dataclass(frozen=True)
class _Policy:
    """A policy of topics.

    Attributes:
        name: last part of its path.
        field: name in the topic's policies.
        read: makes its value of the body; None for a body that says nothing.
        applied: what holds for a topic in the end, whoever said so.
        changed: makes loaded topics obey.
    """

    name: str
    field: str
    read: Callable[[Any], Any]
    applied: Callable[[Call, TopicName], Any]
    changed: Callable[[Call, TopicName], Awaitable[None]]


async def adjust_deduplication(call: Call, concerns: Callable[[TopicName], bool]) -> None:
    """Have loaded topics obey at once.

    Raises:
        PersistenceError: the disk refuses; it is tried again.
    """
    topics = [topic for topic in call.broker.topics.values() if concerns(topic.name)]
    await call.broker.adjust_deduplication(topics)
    for topic in topics:
        topic.deduplication.check()


async def _adjust_deduplication(call: Call, name: TopicName) -> None:
    await adjust_deduplication(call, lambda other: other.base == name.base)


def _threshold(body: Any) -> int | None:
    threshold = as_int(body, "compactionThreshold", bits=64)
    if threshold is not None and threshold < 0:
        raise Refused(412, "Invalid value for compactionThreshold")
    return threshold


async def _nothing_to_do(call: Call, name: TopicName) -> None:
    """The broker reads the policy each time that it looks at the topic."""


_POLICIES = (
    _Policy(
        "deduplicationEnabled",
        "deduplicationEnabled",
        lambda body: as_bool(body, "deduplicationEnabled"),
        lambda call, name: call.broker.is_deduplicated(name),
        _adjust_deduplication,
    ),
    _Policy(
        "compactionThreshold",
        "compaction_threshold",
        _threshold,
        lambda call, name: call.namespaces.compaction_threshold(name, call.broker.config.compaction_threshold_bytes),
        _nothing_to_do,
    ),
)


def _topic_of(call: Call) -> TopicName:
    """Return the topic of the path, which must exist and be no single partition.

    Raises:
        Refused: 404, 412.
    """
    name = call.require_topic_namespace()
    if name.partition >= 0:
        raise Refused(412, "Not allowed to set/get topic policy for a partition")
    if not call.namespaces.partitions(name) and not exists(call, name):
        raise not_found(name)
    if call.flag("isGlobal"):
        raise not_supported("a policy for all clusters (isGlobal)", "set it for this cluster")
    return name


def _get(policy: _Policy) -> Handler:
    async def get(call: Call) -> Response:
        name = _topic_of(call)
        value = call.namespaces.topic_policies(name).get(policy.field)
        if value is None and call.flag("applied"):
            value = policy.applied(call, name)
        return nothing() if value is None else as_json(value)

    return get


def _set(policy: _Policy) -> Handler:
    async def set_(call: Call) -> Response:
        value = policy.read(await call.json())
        name = _topic_of(call)
        await _change(call, name, policy, value)
        return done()

    return set_


def _remove(policy: _Policy) -> Handler:
    async def remove(call: Call) -> Response:
        await _change(call, _topic_of(call), policy, None)
        return done()

    return remove


async def _change(call: Call, name: TopicName, policy: _Policy, value: Any) -> None:
    def change(policies: dict[str, Any]) -> dict[str, Any]:
        rest = {field: held for field, held in policies.items() if field != policy.field}
        return rest if value is None else rest | {policy.field: value}

    await call.namespaces.change_topic_policies(name, change)
    await policy.changed(call, name)


def _routes() -> Iterator[tuple[str, str, Handler]]:
    for policy in _POLICIES:
        path = f"{_T}/{policy.name}"
        yield "GET", path, _get(policy)
        yield "POST", path, _set(policy)
        yield "DELETE", path, _remove(policy)


ROUTES: Routes = tuple(_routes())
