"""Servers of a local run: checks that the broker is available, and finds the state store."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import click

from ..api.context import NO_STATE_STORE
from ..client.connections.service_url import HostPort, parse_service_url
from ..errors import ConnectionLost
from ..instance.identity import table_of
from ..runtime.local import LocalRun
from ..security.client_credentials import ClientCredentials
from ..security.local_token import STATE_KEY_FILE, local_token_of
from ..state.access import TableKey, with_token
from ..wire.functions_pb2 import FunctionMetaData
from ..worker.cluster.state_discovery import announced_state_store
from .failure import Failure
from .reach import check_broker


def connected(local: LocalRun) -> LocalRun:
    """Wait until a local run's broker responds, and return the local run with its state store. Blocking.

    Raises:
        Failure: the broker does not respond, or the code uses state and no state store was found.
        MagnetarError: the address belongs to another kind of server, or the broker rejects the client.
    """
    asyncio.run(check_broker(local.service_url, local.admin_url, local.security, "--broker-service-url"))
    if not local.state_url:
        local = replace(local, state_url=_state_url_for(local))
        if local.state_url:
            click.echo(f"using the state store of the broker at {local.admin_url}", err=True)
    if local.state_call and not local.state_url:
        raise Failure(f"className {local.details.className} calls {local.state_call}, but {NO_STATE_STORE}")
    return local


def _state_url_for(local: LocalRun) -> str:
    """Return the URL of the broker's state store, with a token if required; empty if none is usable.

    The REST interface of a different broker, such as one at the default address, is ignored.
    """
    credentials = ClientCredentials(local.security)
    try:
        found = announced_state_store(local.admin_url, credentials)
    except ConnectionLost:
        return ""
    if found is None or not _is_same_broker(local.service_url, found.broker_urls):
        return ""
    if credentials.authentication is None:
        return found.url
    key = _local_key((local.admin_url, local.service_url))
    return (
        with_token(found.url, key.table_token(table_of(FunctionMetaData(functionDetails=local.details)))) if key else ""
    )


def _is_same_broker(service_url: str, announced: tuple[str, ...]) -> bool:
    given = {_comparable(host) for host in parse_service_url(service_url).hosts}
    return any(_comparable(host) in given for url in announced for host in parse_service_url(url).hosts)


def _comparable(place: HostPort) -> HostPort:
    return place._replace(host="127.0.0.1") if place.host in ("localhost", "::1") else place


def _local_key(urls: tuple[str, str]) -> TableKey | None:
    """Return the state store key of a standalone server on this machine, if the credentials are its local token."""
    data_dir = Path(os.environ.get("MAGNETAR_DATA_DIR", "data"))
    file = data_dir / STATE_KEY_FILE
    return TableKey.read(str(file)) if local_token_of(data_dir, urls) and file.is_file() else None
