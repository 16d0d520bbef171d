"""Who may use which table: a token for each, which the workers make and the service checks, with one key of both.

Design: the token of a table is the HMAC of its name, so the service needs no list and no clock: it makes the token anew
and compares. A function is given the token of its own table alone. That name has the uuid of the function's creation:
the token of a function that was deleted opens nothing of the next one of its name. One more token, which only workers
make for themselves, opens everything. A new key ends all tokens.

A token stands in the url by which a client finds the service, ``bk://TOKEN@host:port`` or ``bk+ssl://TOKEN@host:port``,
so whoever is given the url of a function's state is given just that.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import urlsafe_b64encode
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..errors import InvalidConfig
from ..security.credentials.client_security import ClientSecurity
from .limits import TLS_SCHEME, address_of, scheme_of
from .names import split_epoch

KEY_BYTES_MIN = 32
KEY_BYTES_MAX = 4096
KEY_SETTING = "stateStorageTokenSecretKey"
_TABLES_KEPT = 4096
_PURPOSE = b"magnetar state table "
_PURPOSE_ALL = b"magnetar state, all tables"


class TableKey:
    """The key with which tokens are made and checked."""

    def __init__(self, key: bytes) -> None:
        """Take the bytes of a key.

        Raises:
            InvalidConfig: it is too short to protect anything, or too long to be one.
        """
        if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
            raise InvalidConfig(
                f"{KEY_SETTING}: a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, this one {len(key)};"
                f" make one with `head -c {KEY_BYTES_MIN} /dev/urandom > FILE`"
            )
        self._key = key
        self._full = self._token(_PURPOSE_ALL)
        # One function asks for one table, so few names come again and again.
        self._table_token = lru_cache(_TABLES_KEPT)(lambda name: self._token(_PURPOSE + name.encode()))

    def __repr__(self) -> str:
        return "TableKey()"

    @classmethod
    def read(cls, place: str) -> TableKey:
        """Return the key in a file, given as path or ``file://`` url; its bytes as they are.

        Raises:
            InvalidConfig: the file cannot be read, or holds no key.
        """
        path = Path(place.removeprefix("file://"))
        try:
            with path.open("rb") as file:
                return cls(file.read(KEY_BYTES_MAX + 1))
        except OSError as error:
            raise InvalidConfig(f"{KEY_SETTING} {place}: {error.strerror}; name a file with a key") from error

    @classmethod
    def made_at(cls, path: Path) -> TableKey:
        """Return the key in a file, which is made, for its owner only, where there is none.

        Raises:
            InvalidConfig: as `read`.
        """
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(os.urandom(KEY_BYTES_MIN))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        return cls.read(str(path))

    def table_token(self, table: str) -> str:
        """Return the token of one table; an epoch in its name does not count."""
        return self._table_token(split_epoch(table)[0])

    def full_token(self) -> str:
        """Return the token that opens every table, and what is kept to workers."""
        return self._full

    def allows(self, token: str, table: str | None) -> bool:
        """Return whether a token opens a table; None for what is kept to workers."""
        shown = token.encode("utf-8", "backslashreplace")
        is_full = hmac.compare_digest(shown, self._full.encode())
        if table is None:
            return is_full
        return hmac.compare_digest(shown, self._table_token(table).encode()) or is_full

    def _token(self, purpose: bytes) -> str:
        return urlsafe_b64encode(hmac.digest(self._key, purpose, hashlib.sha256)).decode().rstrip("=")


class StoreAddress(NamedTuple):
    """Where the service is, and how a client makes sure that it is the one.

    Attributes:
        url: with a token, if it has one.
        security: whom the client trusts, and its certificate; used with TLS only.
    """

    url: str
    security: ClientSecurity = ClientSecurity()

    def check(self) -> None:
        """Refuse what is no address, or cannot be done with TLS.

        Raises:
            InvalidConfig: names the setting.
        """
        address_of(self.url)
        if self.security.tls_allow_insecure_connection and has_tls(self.url):
            raise InvalidConfig(
                f"stateStorageServiceUrl {without_token(self.url)}: the certificate of a state store must always be"
                " trusted: remove tlsAllowInsecureConnection: true"
            )


def has_tls(url: str) -> bool:
    """Return whether the service is reached with TLS."""
    return scheme_of(url) == TLS_SCHEME


def with_token(url: str, token: str) -> str:
    """Return the url of the service with a token in it."""
    scheme = scheme_of(url)
    return f"{scheme}{token}@{without_token(url).removeprefix(scheme)}"


def without_token(url: str) -> str:
    """Return the url of the service as it may be shown."""
    scheme = scheme_of(url)
    return scheme + url.rpartition("@")[2] if "@" in url and scheme else url


def token_in(url: str) -> str:
    """Return the token in the url of the service; empty if it has none."""
    return url.removeprefix(scheme_of(url)).rpartition("@")[0]
