"""Enables broker deduplication for one topic over REST, and waits until it takes effect.

Design: an enabled policy is not enough. With a topic-level policy, Apache Pulsar 4.0 serves a freshly loaded topic
(after an unload, or on another broker after a crash) before it has recovered the stored sequence ids; messages resent
meanwhile may be stored twice. So a producer that relies on deduplication uses `memory_guard` to wait, each time before
it attaches, until the broker reports that the recovery is complete.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConnectionLost, MagnetarError
from ..security.client_credentials import ClientCredentials
from ..web.client import Answer, request
from ..wire.topic_name import parse_topic_name

if TYPE_CHECKING:
    from .config import Guard
    from .connections.connection import Connection

TIMEOUT_S = 10.0
EFFECTIVE_WITHIN_S = 10.0  # Apache Pulsar distributes policies through a topic
_POLL_S = 0.05
_NOT_FOUND = 404
_CONFLICT = 409
_DENIED = (401, 403)
_RETRIED = (409, 429, 500, 503)
_REASON_CHARACTERS = 200


class DeduplicationOff(MagnetarError):
    """Deduplication is not enabled for a topic, and cannot be enabled."""


Credentials = ClientCredentials | None
"""Credentials for the REST interface, or None."""


def switch_on(admin_url: str, topic: str, credentials: Credentials = None) -> bool:
    """Enable deduplication for a topic and all its partitions, and wait until the broker reports it as enabled.

    A missing topic is created without partitions. If the client may not read the policy, the topic's reported state is
    used.

    Returns: whether it was already enabled.

    Raises:
        DeduplicationOff: the broker rejected the request, or has no topic policies; the message states the remedy.
        ConnectionLost: the REST interface cannot be reached.
    """
    path = f"/admin/v2/{parse_topic_name(topic).rest_path}"
    call = partial(_call, admin_url, credentials)
    if _is_on(call, path):
        return True
    if not partitions_of(admin_url, topic, credentials):
        _create(call, topic, path)
    deadline_s = time.monotonic() + EFFECTIVE_WITHIN_S
    while not (answer := call("POST", f"{path}/deduplicationEnabled", True)).is_success:
        # All instances of a function start at the same time and change the policy concurrently.
        if answer.status not in _RETRIED or time.monotonic() > deadline_s:
            raise DeduplicationOff(_refusal(topic, _shown(answer)))
        time.sleep(_POLL_S)
    while not _is_on(call, path):
        if time.monotonic() > deadline_s:
            why = f"it was not enabled within {EFFECTIVE_WITHIN_S:g} s"
            raise DeduplicationOff(_refusal(topic, why))
        time.sleep(_POLL_S)
    return False


def require_on(admin_url: str, topic: str, credentials: Credentials = None) -> None:
    """Require that deduplication is enabled for a topic by a policy or the broker's setting, without changing any.

    A missing topic is created, without partitions, if deduplication will be enabled for it. Reading the broker's
    setting requires super-user credentials; without them, it counts as disabled.

    Raises:
        DeduplicationOff: deduplication is disabled.
        ConnectionLost: the REST interface cannot be reached.
    """
    name = parse_topic_name(topic)
    path, call = f"/admin/v2/{name.rest_path}", partial(_call, admin_url, credentials)
    if _is_on(call, path) or _is_effective(call, path):
        return
    is_missing = call("GET", f"{path}/stats").status == _NOT_FOUND and not partitions_of(admin_url, topic, credentials)
    if not (is_missing and _is_on_by_default(call, name.namespace_name)):
        raise DeduplicationOff(f"deduplication is disabled on the output topic {topic}")
    _create(call, topic, path)


def _create(call: Callable[..., Answer], topic: str, path: str) -> None:
    created = call("PUT", path)
    if not created.is_success and created.status != _CONFLICT:
        raise DeduplicationOff(f"cannot create output topic {topic}: {_shown(created)}")


def _is_on_by_default(call: Callable[..., Answer], namespace: str) -> bool:
    """Return whether deduplication is enabled for topics of a namespace without a topic policy."""
    answer = call("GET", f"/admin/v2/namespaces/{namespace}/deduplication")
    policy = answer.text.strip()
    if not answer.is_success or policy in ("true", "false"):
        return answer.is_success and policy == "true"
    answer = call("GET", "/admin/v2/brokers/configuration/runtime")
    return answer.is_success and str(answer.json().get("brokerDeduplicationEnabled")).lower() == "true"


def _is_on(call: Callable[..., Answer], path: str) -> bool:
    answer = call("GET", f"{path}/deduplicationEnabled")
    if answer.status not in _DENIED:
        return answer.is_success and answer.text.strip() == "true"
    # Only administrators may read the policy, but producers may read the state of a topic or its partitions.
    return _is_effective(call, path)


def _is_effective(call: Callable[..., Answer], path: str) -> bool:
    answer = call("GET", f"{path}/stats")
    if answer.is_success:
        return _is_enabled(answer.json())
    answer = call("GET", f"{path}/partitioned-stats?perPartition=true")
    partitions: dict[str, Any] = answer.json().get("partitions", {}) if answer.is_success else {}
    return bool(partitions) and all(map(_is_enabled, partitions.values()))


def _is_enabled(statistics: Mapping[str, Any]) -> bool:
    return statistics.get("deduplicationStatus") in ("Enabled", "Recovering")  # while the state is being loaded


def memory_guard(
    admin_url: str,
    topic: str,
    before: Guard | None = None,
    *,
    credentials: Credentials = None,
    timeout_s: float = EFFECTIVE_WITHIN_S,
) -> Guard:
    """Return a producer guard that waits until the broker has recovered the topic's deduplication state.

    Args:
        admin_url: URL of the broker's REST interface; the requests also load the topic.
        topic: full name; the partition's name for a partitioned topic.
        before: awaited first.
        credentials: for the REST interface.
        timeout_s: how long each attempt to attach waits.

    The guard raises ConnectionLost on timeout, after which the producer retries. It does not wait for a topic whose
    deduplication is disabled, which `switch_on` detects.
    """

    async def guard(connection: Connection) -> None:
        if before is not None:
            await before(connection)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not (status := await asyncio.to_thread(_memory, admin_url, topic, credentials)).is_settled:
            if loop.time() > deadline_s:
                raise ConnectionLost(
                    f"deduplication of {topic} was still {status.name} after {timeout_s:g} s:"
                    " nothing can be sent until the broker has recovered its state"
                )
            await asyncio.sleep(_POLL_S)

    return guard


class _Memory(NamedTuple):
    """A topic's deduplication status, as reported by the broker.

    Attributes:
        name: the status.
        is_settled: whether the status is final.
    """

    name: str
    is_settled: bool


def _memory(admin_url: str, topic: str, credentials: Credentials) -> _Memory:
    path = f"/admin/v2/{parse_topic_name(topic).rest_path}"
    call = partial(_call, admin_url, credentials)
    answer = call("GET", f"{path}/stats")
    if answer.status == _NOT_FOUND:
        return _Memory("missing", True)  # nothing is stored in a missing topic
    if not answer.is_success:
        raise ConnectionLost(f"{admin_url} did not return the deduplication status of {topic}: {_shown(answer)}")
    name = str(answer.json().get("deduplicationStatus"))
    if name == "Disabled":
        # If the policy is enabled, it has not reached the topic yet.
        return _Memory(name, not _is_on(call, f"/admin/v2/{parse_topic_name(topic).base.rest_path}"))
    return _Memory(name, name == "Enabled")


def partitions_of(admin_url: str, topic: str, credentials: Credentials = None) -> int:
    """Return a topic's number of partitions, or 0 if it is not partitioned or does not exist."""
    answer = _call(admin_url, credentials, "GET", f"/admin/v2/{parse_topic_name(topic).rest_path}/partitions")
    return int(answer.json().get("partitions", 0)) if answer.is_success else 0


def _refusal(topic: str, why: str) -> str:
    return (
        f"EFFECTIVELY_ONCE requires deduplication on the output topic {topic}, which could not be enabled:"
        f" {why}: set topicLevelPoliciesEnabled=true and systemTopicEnabled=true on the broker, or use ATLEAST_ONCE"
    )


def _shown(answer: Answer) -> str:
    return f"status {answer.status} {answer.reason[:_REASON_CHARACTERS]}"


def _call(admin_url: str, credentials: Credentials, method: str, path: str, body: Any = None) -> Answer:
    url = admin_url.rstrip("/") + path
    return request(method, url, body=body, timeout_s=TIMEOUT_S, credentials=credentials)
