"""The ``websocket`` source reads messages that a server sends over a WebSocket.

WebSockets have no positions or acknowledgements. Messages that the server sends while the source is disconnected are
lost, and so are received messages that are not durable when the source stops. The source buffers a limited number of
messages. When the buffer is full, it stops reading from the connection, so the server has to wait.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from ..api.connector import Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

READ_MAX = 1000
_WAIT_S = 0.3
_QUEUE_FRAMES = 64
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t -~]*")


@dataclass
class WebsocketSourceConfig:
    """Settings of the ``websocket`` source."""

    url: str = option("Server URL, ws://host/path or wss://host/path.")
    headers: dict[str, str] = option("Headers of the opening request.", default={})
    token: str = option("Token sent as Authorization: Bearer.", default="", secret=True)
    subscribe_message: str = option("Message to send once the connection is open; empty for no message.", default="")
    subprotocols: list[str] = option("Subprotocols to offer to the server.", default=[])
    message_types: Literal["all", "text", "binary"] = option(
        "Types of messages to read; others are dropped.", default="all"
    )
    max_message_size: int = option(
        "Maximum bytes per message. A larger message closes the connection.", default=4 << 20, limits=(1, 1 << 30)
    )
    connect_timeout: float = option("Connection timeout in seconds.", default=10.0, limits=(0.1, 600))
    ping_interval: float = option(
        "Interval between pings that detect a lost connection, in seconds.", default=20.0, limits=(0.1, 3600)
    )


class WebsocketSource(Source):
    """Reads messages from a WebSocket server. Messages sent while the source is disconnected are lost."""

    config = WebsocketSourceConfig

    def __init__(self) -> None:
        """Create an unconnected source."""
        self._connection: ClientConnection | None = None
        self._open = contextlib.ExitStack()

    def check(self, config: WebsocketSourceConfig) -> None:
        """Validate the configuration."""
        try:
            parts = urlsplit(config.url)
            is_whole = parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_whole = False
        if not is_whole:
            raise InvalidConfig(
                f"invalid url {_without_password(config.url)!r}: expected ws://host:port/path or wss://host:port/path"
            )
        if parts.fragment:
            raise InvalidConfig("url must not contain a fragment (#…): remove it")
        if parts.username or parts.password:
            raise InvalidConfig(
                "url must not contain a user name or password, which would be shown in clear text: use token or headers"
            )
        for name, value in config.headers.items():
            if not (_HEADER_NAME.fullmatch(name) and isinstance(value, str) and _HEADER_VALUE.fullmatch(value)):
                raise InvalidConfig(
                    f"headers: invalid header {name[:60]!r}: expected a valid name and a single-line ASCII value"
                )
            if name.lower() == "authorization" and config.token:
                raise InvalidConfig("header Authorization and token are mutually exclusive: set only one of them")

    def not_effectively_once(self, config: WebsocketSourceConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "WebSockets have no positions, so messages cannot be reread"

    def not_parallel(self, config: WebsocketSourceConfig) -> str:
        """Return why only one instance can run, or an empty string."""
        return "each instance would receive every message"

    def open(self, config: WebsocketSourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        library = need("websocket", "websockets.exceptions")
        client = need("websocket", "websockets.sync.client")
        self._config = config
        self._closed: Any = library.ConnectionClosed
        self._log = context.logger
        headers = dict(config.headers)
        if config.token:
            headers["Authorization"] = f"Bearer {config.token}"
        try:
            opening = client.connect(
                config.url,
                additional_headers=headers,
                subprotocols=config.subprotocols or None,
                open_timeout=config.connect_timeout,
                close_timeout=1.0,
                ping_interval=config.ping_interval,
                ping_timeout=config.ping_interval,
                max_size=config.max_message_size,
                max_queue=_QUEUE_FRAMES,
                proxy=None,
            )
            connection = self._connection = self._open.enter_context(opening)
            if config.subscribe_message:
                connection.send(config.subscribe_message)
        except (OSError, library.WebSocketException) as error:
            raise Retry(f"{config.url}: {_cause(error)}") from error

    def read(self) -> Sequence[Record] | None:
        """Return the next records, or None if none are available yet."""
        connection = self._connection
        assert connection is not None
        records: list[Record] = []
        deadline_s = time.monotonic() + _WAIT_S
        wanted = self._config.message_types
        while len(records) < READ_MAX:
            try:
                # Take all buffered messages; wait only for the first.
                message = connection.recv(0 if records else max(deadline_s - time.monotonic(), 0))
            except TimeoutError:
                break
            except self._closed as error:
                if records:
                    break  # the next read raises it again
                raise Retry(f"{self._config.url}: connection closed: {_cause(error)}") from error
            if wanted in ("all", "text" if isinstance(message, str) else "binary"):
                records.append(Record(message))
        return records or None

    def close(self) -> None:
        """Close the connector."""
        self._connection = None
        self._open.close()


def _cause(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _without_password(url: str) -> str:
    before, at, after = url.rpartition("@")
    return f"***@{after}" if at and before else url
