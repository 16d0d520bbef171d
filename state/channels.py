"""Connection of a client to the table service, with diagnosis of connection failures.

A gRPC channel keeps the certificates that it was created with. If a connection fails and the certificate files have
changed since then, `renew` makes the next call create a new channel.

gRPC's TLS error messages differ between versions, and it reports no reason if the server closes the connection. So a
failed connection is retried once with Python's TLS, to find the cause and the remedy (`tls_failure`).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import grpc

from ..errors import ClosedError, CredentialsUnavailable, MagnetarError, StateStoreUnavailable
from ..security.client_credentials import ClientCredentials
from ..security.tls_failure import tls_failure
from .access import StoreAddress, has_tls, without_token
from .limits import MESSAGE_BYTES_MAX, TLS_SCHEME, address_of

OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    (
        "grpc.min_reconnect_backoff_ms",
        2_000,
    ),  # timeout of an attempt; the other two options set the pause between attempts
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    # Without this, clients in one process would share a connection.
    ("grpc.use_local_subchannel_pool", 1),
)
TRY_S = 1.0
"""Timeout of the connection that diagnoses a failure, in seconds."""
_ENDED = ("socket closed", "reset", "broken pipe", "end of")
"""gRPC's error messages for a connection that the server accepted and then closed."""

_Answer = TypeVar("_Answer")


class Method(Generic[_Answer]):
    """A method of the service, called on the current channel."""

    def __init__(self, channels: Channels, make: Callable[[grpc.Channel], Callable[..., _Answer]]) -> None:
        self._channels = channels
        self._make = make
        self._made: tuple[grpc.Channel | None, Callable[..., _Answer] | None] = (None, None)

    def __call__(self, request: Any, **how: Any) -> _Answer:
        """Make the call; raises gRPC's errors and those of `Channels.current`."""
        channel = self._channels.current()
        on, call = self._made
        if call is None or on is not channel:
            call = self._make(channel)
            self._made = channel, call
        return call(request, **how)


class Channels:
    """The gRPC channel of one client, replaced when needed; thread-safe."""

    def __init__(self, store: StoreAddress) -> None:
        """Create a channel that reads its files and connects on the first call.

        Raises:
            InvalidConfig: the address is invalid, or the TLS settings do not apply to it.
        """
        store.check()
        self._host, self._port = address_of(store.url)
        self._where = f"{self._host}:{self._port}"
        self._shown = without_token(store.url)
        self._has_tls = has_tls(store.url)
        # Authentication uses table tokens, so only the certificates of these settings are used.
        self._credentials = ClientCredentials(replace(store.security, auth_plugin="", auth_params=""))
        self._context: ssl.SSLContext | None = None
        self._lock = Lock()
        self._channel: grpc.Channel | None = None
        self._is_closed = False

    def current(self) -> grpc.Channel:
        """Return the current channel. Blocking.

        Raises:
            ClosedError: the client was closed.
            StateStoreUnavailable: a certificate file cannot be used.
        """
        channel = self._channel
        if channel is not None:
            return channel
        with self._lock:
            if self._is_closed:
                raise ClosedError(f"client of state store {self._shown} is closed")
            if self._channel is None:
                self._channel = self._open()
            return self._channel

    def _open(self) -> grpc.Channel:
        if not self._has_tls:
            return grpc.insecure_channel(self._where, options=OPTIONS)
        try:
            self._context = self._credentials.context()
            credentials = _channel_credentials(self._credentials)
        except MagnetarError as error:
            raise StateStoreUnavailable(f"the state store at {self._shown} cannot be reached: {error}") from error
        return grpc.secure_channel(self._where, credentials, options=OPTIONS)

    def renew(self) -> None:
        """Make the next call create a new channel if the certificate files have changed."""
        if not self._has_tls:
            return
        with suppress(CredentialsUnavailable), self._lock:
            if self._channel is not None and self._credentials.context() is not self._context:
                self._channel.close()
                self._channel = None

    def close(self) -> None:
        """Close the connection; calls in flight fail."""
        with self._lock:
            self._is_closed = True
            if self._channel is not None:
                self._channel.close()

    def why(self, details: str) -> str:
        """Return the cause of a failed connection and the remedy, or an empty string if unknown. Blocking.

        Args:
            details: gRPC's error message.
        """
        said = details.lower()
        if "refused" in said:
            return ""
        if self._has_tls:
            return self._why_no_tls()
        if any(word in said for word in _ENDED) and self._speaks_tls():
            return f"the server requires TLS: use {TLS_SCHEME}{self._where}"
        return ""

    def _why_no_tls(self) -> str:
        try:
            context = self._credentials.context()
            with self._shaken_hands(context) as secure:
                # With TLS 1.3 a server checks the client certificate after the handshake, and only then sends data.
                if not secure.recv(1):
                    raise ConnectionResetError("the server closed the connection")
        except CredentialsUnavailable as error:
            return str(error)
        except OSError as error:
            failure = tls_failure(self._where, error, may_skip_host=False)
            if failure is not None and "does not speak TLS" in str(failure):
                return (
                    f"{self._where} does not speak TLS: set tlsCertificateFilePath and tlsKeyFilePath on the server,"
                    " or use bk://"
                )
            if failure is None and isinstance(error, ssl.SSLError | ConnectionResetError):
                return f"{self._where} closed the TLS connection; it may require a client certificate"
            return "" if failure is None else str(failure)
        return ""

    def _speaks_tls(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # safe: nothing is sent after the handshake
        try:
            with self._shaken_hands(context):
                return True
        except OSError:
            return False

    def _shaken_hands(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        host = self._host.strip("[]")
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((host, self._port), TRY_S)
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise


def _channel_credentials(credentials: ClientCredentials) -> grpc.ChannelCredentials:
    security = credentials.security
    file = security.tls_trust_certs_file
    try:
        roots = Path(file).read_bytes() if file else _system_roots()
        if not security.tls_certificate_file:
            return grpc.ssl_channel_credentials(roots)
        key, certificate = Path(security.tls_key_file).read_bytes(), Path(security.tls_certificate_file).read_bytes()
    except OSError as error:
        raise CredentialsUnavailable(f"{error.filename} cannot be read: {error.strerror}") from error
    return grpc.ssl_channel_credentials(roots, key, certificate)


def _system_roots() -> bytes:
    """Return the system's certificate authorities, which other clients trust by default; gRPC's own default differs."""
    found = ssl.get_default_verify_paths()
    if found.cafile is not None:
        return Path(found.cafile).read_bytes()
    if found.capath is not None:
        return b"\n".join(one.read_bytes() for one in sorted(Path(found.capath).glob("*.0")))
    import certifi

    return Path(certifi.where()).read_bytes()
