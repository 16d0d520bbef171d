"""Admission of workers: rejects workers that must not join the cluster, with the reason and the remedy.

Two workers with the same id would both start the instances assigned to that id. Apache Pulsar's own workers use the
same topic and subscription names, so they could become the leader of a cluster whose packages they cannot read, and
vice versa.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import httpx

from ..config.connector_config import BUILT_IN
from ..errors import MagnetarError
from ..membership.manager import Member, parse_member, participants, read_roster, without_tls
from ..web.async_client import tls_reason
from ..wire.functions_pb2 import FunctionMetaData
from .functions.package_intake import PACKAGE_PREFIX

MARK = "magnetar"
"""Membership property that distinguishes our workers from Apache Pulsar's."""

_PROBE_TIMEOUT_S = 2.0


def check_namespace(namespace: str, topic_stats: Mapping[str, Any], functions: Iterable[FunctionMetaData]) -> None:
    """Reject a namespace used by Apache Pulsar's own workers.

    Raises:
        MagnetarError: the namespace is in use; the message contains the remedy.
    """
    strangers = [parse_member(name) for name, properties in participants(topic_stats) if MARK not in properties]
    workers = sorted(member.worker_id for member in strangers if member)
    names = [
        metadata.functionDetails.name
        for metadata in functions
        if not metadata.packageLocation.packagePath.startswith((PACKAGE_PREFIX, BUILT_IN))
    ]
    if not workers and not names:
        return
    used = f"worker {workers[0]} is registered" if workers else f"it contains the function {names[0]}"
    raise MagnetarError(
        f"{namespace} is used by Apache Pulsar's own function workers ({used}): set a separate namespace for this"
        " cluster, such as `pulsarFunctionsNamespace: public/magnetar`, in --config"
    )


def check_tls(me: Member, topic_stats: Mapping[str, Any]) -> None:
    """Reject a TLS-only worker in a cluster without TLS, because the workers could not reach each other.

    Raises:
        MagnetarError: other workers do not use TLS; the message contains the remedy.
    """
    if me.is_tls_only:
        for member in read_roster(topic_stats).members:
            if not member.tls_port:
                raise MagnetarError(f"{without_tls(member)}, or set a workerPort for this worker until then")


async def check_id(me: Member, topic_stats: Mapping[str, Any], http: httpx.AsyncClient) -> None:
    """Check that no other running worker uses this worker's id.

    Being listed as a member does not prove that a worker is running, because the broker takes a while to notice a dead
    machine. The other worker must therefore also answer a request.

    Raises:
        MagnetarError: the id is in use; the message contains the remedy.
    """
    for member in read_roster(topic_stats).members:
        url = member.url_for(by_tls=bool(me.tls_port))
        if member.worker_id == me.worker_id and member != me and await _answers(url, http):
            raise MagnetarError(
                f"worker id {me.worker_id} is already used by the worker on {url}: choose another --worker-id, or stop"
                " that worker first"
            )


async def _answers(url: str, http: httpx.AsyncClient) -> bool:
    try:
        await http.get(f"{url}/version", timeout=_PROBE_TIMEOUT_S)
    except httpx.InvalidURL:
        return False
    except (httpx.HTTPError, OSError) as error:  # OSError: httpx does not wrap TLS errors after the handshake
        return bool(tls_reason(url, error))  # a TLS failure on either side proves that a worker is running
    return True
