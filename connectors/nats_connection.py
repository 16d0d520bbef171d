"""Shared parts of the ``nats`` source and sink: connection settings, the connection, and properties as headers."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

from ..api.connector import Retry
from ..api.connector_config import option
from ..errors import InvalidConfig
from .libraries import need

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TOKEN_MARKS = "!#$&'+-.^_`|~"  # noqa: S105 (characters)
_EXTENDED = "UTF-8''"
_RESERVED = "nats-"
_SCHEMES = ("nats", "tls", "ws", "wss")


@dataclass(kw_only=True)
class NatsConfig:
    """Connection settings of the ``nats`` connectors."""

    url: str = option(
        "Comma-separated server URLs, such as nats://host:port. The schemes tls, ws and wss are also supported.",
        aliases=("servers",),
    )
    mode: Literal["jetstream", "core"] = option(
        "jetstream: the server stores and confirms messages; core: messages are neither stored nor confirmed, and are "
        "lost without a connected subscriber.",
        default="jetstream",
    )
    username: str = option("User name; empty for no authentication.", default="", secret=True)
    password: str = option("Password of the user.", default="", secret=True)
    token: str = option("Token, instead of a user name and password.", default="", secret=True)
    credentials_file: str = option("User credentials file (.creds), instead of a password.", default="")
    nkey_seed: str = option("NKey seed, instead of a password.", default="", secret=True)
    tls_ca_file: str = option("PEM file with trusted CA certificates; empty for the system certificates.", default="")
    timeout_ms: int = option(
        "Timeout for connecting and for responses, in milliseconds.", default=10_000, limits=(100, 600_000)
    )
    key_header: str = option("Header that contains the record key; empty for no key.", default="Pulsar-Key")


def check(config: NatsConfig) -> None:
    """Raise InvalidConfig, with the option name, for invalid or contradictory settings."""
    servers = servers_of(config)
    if not servers:
        raise InvalidConfig("url is required, as nats://host:port[,nats://host:port…]")
    for server in servers:
        try:
            parts = urlsplit(server)
            is_one = parts.scheme in _SCHEMES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            is_one = False
        if not is_one:
            raise InvalidConfig(f"invalid url {server!r}: expected nats://host:port")
    given = [
        key
        for key, value in (
            ("password", config.password),
            ("token", config.token),
            ("credentialsFile", config.credentials_file),
            ("nkeySeed", config.nkey_seed),
        )
        if value
    ]
    if len(given) > 1:
        raise InvalidConfig(f"{' and '.join(given)} are mutually exclusive: set only one of them")
    if config.password and not config.username:
        raise InvalidConfig("password requires username")
    if config.key_header and not _TOKEN.fullmatch(config.key_header):
        raise InvalidConfig(f"invalid keyHeader {config.key_header!r}: not a valid header name")


def servers_of(config: NatsConfig) -> list[str]:
    """Return the server URLs."""
    texts = filter(None, map(str.strip, config.url.split(",")))
    return [text if "://" in text else f"nats://{text}" for text in texts]


def fault_of_subject(subject: str, *, wildcards: bool) -> str:
    """Return why a string is not a valid subject, or an empty string."""
    tokens = subject.split(".")
    if not subject or "" in tokens:
        return "must not be empty or contain empty parts"
    if any(character.isspace() or character == "\0" for character in subject):
        return f"{subject!r} must not contain whitespace"
    if not wildcards and ("*" in tokens or ">" in tokens):
        return f"{subject!r} must not contain wildcards"
    if ">" in tokens[:-1]:
        return f"{subject!r} must not contain > except at the end"
    return ""


class NatsConnection:
    """A connection, from `connect` to `close`, without automatic reconnects.

    Attributes:
        client: the library's client.
        trouble: last error reported by the server or the library.
    """

    def __init__(self, config: NatsConfig) -> None:
        """Create an unconnected connection."""
        self.trouble = ""
        self._config = config
        self._nats = need("nats", "nats")
        self.client: Any = self._nats.NATS()

    async def connect(self, name: str) -> None:
        """Connect to a server.

        Raises:
            Retry: the server is unavailable or rejects the login.
        """
        config = self._config
        user = {"user": config.username or None, "password": config.password or None, "token": config.token or None}
        tls = None
        if config.tls_ca_file:
            try:
                tls = ssl.create_default_context(cafile=config.tls_ca_file)
            except (OSError, ssl.SSLError) as error:
                raise InvalidConfig(f"cannot read tlsCaFile {config.tls_ca_file!r}: {error}") from error
        try:
            await self.client.connect(
                servers_of(config),
                name=name,
                allow_reconnect=False,
                connect_timeout=config.timeout_ms / 1000,
                max_reconnect_attempts=1,  # try each server once, without delay: the instance retries
                reconnect_time_wait=0,
                error_cb=self._on_error,
                user_credentials=config.credentials_file or None,
                nkeys_seed_str=config.nkey_seed or None,
                tls=tls,
                **user,
            )
        except (self._nats.errors.Error, OSError, TimeoutError) as error:
            cause = self.trouble if isinstance(error, self._nats.errors.NoServersError) else ""
            raise Retry(f"{config.url}: {cause or _text(error)}") from error

    async def _on_error(self, error: Exception) -> None:
        self.trouble = _text(error)

    def raise_if_lost(self) -> None:
        """Raise Retry if the connection is closed."""
        if not self.client.is_connected:
            raise Retry(f"{self._config.url}: connection lost: {self.trouble or 'closed'}")

    def away(self, error: BaseException) -> Retry:
        """Return the Retry for a library error that was not caused by a record."""
        return Retry(f"{self._config.url}: {_text(error)}{f' ({self.trouble})' if self.trouble else ''}")

    async def flush(self) -> None:
        """Wait until the server has received all sent data.

        Raises:
            Retry: the server did not respond.
        """
        try:
            await self.client.flush(max(int(self._config.timeout_ms / 1000), 1))
        except (self._nats.errors.Error, OSError, TimeoutError) as error:
            raise self.away(error) from error

    async def close(self) -> None:
        """Close the connection."""
        await self.client.close()


def _text(error: BaseException) -> str:
    return str(error).removeprefix("nats: ") or type(error).__name__


def headers_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Convert properties to headers.

    Names that are not valid tokens are percent-encoded. Values that are not allowed in a header line are encoded as in
    RFC 8187, with an asterisk after the name. Names that start with ``Nats-`` are omitted, because servers interpret
    them.
    """
    headers: dict[str, str] = {}
    for name, value in properties.items():
        if name.lower().startswith(_RESERVED):
            continue
        if not _TOKEN.fullmatch(name) or "%" in name or name.endswith("*"):
            name = quote(name, safe=_TOKEN_MARKS)
        if value != value.strip() or "\r" in value or "\n" in value:
            headers[f"{name}*"] = _EXTENDED + quote(value, safe="")
        elif name:
            headers[name] = value
    return headers


def properties_of(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Convert headers to properties; the inverse of `headers_of`."""
    properties: dict[str, str] = {}
    for name, value in (headers or {}).items():
        if name.endswith("*") and value.startswith(_EXTENDED):
            name, value = name[:-1], unquote(value.removeprefix(_EXTENDED))
        properties[unquote(name) if "%" in name else name] = value
    return properties
