"""Parsing of ``metadataStoreUrl``, and opening of the store that it specifies."""

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
_REMEDY = "expected zk:host:2181,host:2181/path or sqlite:file; if unset, SQLite in the data directory is used"


class StoreUrl(NamedTuple):
    """A parsed URL.

    Attributes:
        servers: ZooKeeper servers as ``host:port,…``; empty for SQLite.
        path: ZooKeeper node (``/`` for the root), or SQLite file (empty for the file in the data directory).
    """

    servers: str
    path: str


def parse_store_url(url: str) -> StoreUrl:
    """Parse a URL. An empty URL means SQLite in the data directory.

    Raises:
        InvalidConfig: the URL is malformed; the message contains the expected form.
    """
    if not url or url.startswith("sqlite:"):
        return StoreUrl("", url.removeprefix("sqlite:"))
    if not url.startswith("zk:"):
        raise InvalidConfig(f"unknown metadata store in metadataStoreUrl {url!r}: {_REMEDY}")
    servers, slash, path = url.removeprefix("zk:").partition("/")
    addresses = []
    for server in servers.split(","):
        match = _SERVER.fullmatch(server)
        port = int(match["port"] or DEFAULT_ZOOKEEPER_PORT) if match else 0
        if match is None or not 0 < port < 65536:
            raise InvalidConfig(f"metadataStoreUrl {url!r}: {server!r} is not host:port: {_REMEDY}")
        addresses.append(f"{match['host']}:{port}")
    path = slash + path.rstrip("/")
    try:
        if path not in ("", "/"):
            check_path(path)
    except InvalidConfig as exc:
        raise InvalidConfig(f"metadataStoreUrl {url!r}: {exc}") from exc
    return StoreUrl(",".join(addresses), path or "/")


async def open_store(url: str, default_file: Path, timeout_s: float) -> MetadataStore:
    """Open the store that a URL specifies.

    Args:
        url: URL to parse with `parse_store_url`.
        default_file: SQLite file to use if the URL specifies none.
        timeout_s: timeout for connecting to servers and for each operation.

    Raises:
        InvalidConfig: the URL is malformed.
        StorageError: the store cannot be opened; `MetadataUnavailable` if no ZooKeeper server responds.
    """
    parsed = parse_store_url(url)
    if parsed.servers:
        # Imported here, because kazoo takes memory and only these brokers need it.
        from .zookeeper import ZookeeperStore

        return await ZookeeperStore.open(parsed.servers, parsed.path, timeout_s)
    return await asyncio.to_thread(SqliteStore.open, Path(parsed.path) if parsed.path else default_file)
