"""Parsing of ``metadataStoreUrl``, and opening the store that it names."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import NamedTuple

from ...errors import InvalidConfig
from .sqlite import SqliteStore
from .store import MetadataStore, check_path

DEFAULT_ZOOKEEPER_PORT = 2181
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_REMEDY = "write zk:host:2181,host:2181/path, sqlite:file, or leave it out for SQLite in the data directory"


class StoreUrl(NamedTuple):
    """A parsed URL.

    Attributes:
        servers: ZooKeeper servers, ``host:port,…``; empty for SQLite.
        path: ZooKeeper node, ``/`` for the root; for SQLite the file, empty for the one in the data directory.
    """

    servers: str
    path: str


def parse_store_url(url: str) -> StoreUrl:
    """Parse a URL; an empty one means SQLite in the data directory.

    Raises:
        InvalidConfig: the URL is malformed; the text has the expected form.
    """
    if not url or url.startswith("sqlite:"):
        return StoreUrl("", url.removeprefix("sqlite:"))
    if not url.startswith("zk:"):
        raise InvalidConfig(f"metadataStoreUrl {url!r} names no metadata store that we know; {_REMEDY}")
    servers, slash, path = url.removeprefix("zk:").partition("/")
    addresses = []
    for server in servers.split(","):
        match = _SERVER.fullmatch(server)
        port = int(match["port"] or DEFAULT_ZOOKEEPER_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            raise InvalidConfig(f"metadataStoreUrl {url!r}: {server!r} is not host:port; {_REMEDY}")
        addresses.append(f"{match['host']}:{port}")
    path = slash + path.rstrip("/")
    try:
        if path not in ("", "/"):
            check_path(path)
    except InvalidConfig as exc:
        raise InvalidConfig(f"metadataStoreUrl {url!r}: {exc}") from exc
    return StoreUrl(",".join(addresses), path or "/")


async def open_store(url: str, default_file: Path, timeout_s: float) -> MetadataStore:
    """Open the store that a URL names.

    Args:
        url: see `parse_store_url`.
        default_file: SQLite file if the URL names none.
        timeout_s: timeout for connecting to servers, and for each operation.

    Raises:
        InvalidConfig: the URL is malformed.
        StorageError: the store cannot be opened; MetadataUnavailable if no ZooKeeper server responds.
    """
    parsed = parse_store_url(url)
    if parsed.servers:
        from .zookeeper import ZookeeperStore  # imported here, as kazoo costs memory and only these brokers need it

        return await ZookeeperStore.open(parsed.servers, parsed.path, timeout_s)
    return await asyncio.to_thread(SqliteStore.open, Path(parsed.path) if parsed.path else default_file)
