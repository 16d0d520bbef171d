"""A client's credentials and TLS context, reloaded when files change."""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING

from ..errors import CredentialsUnavailable, InvalidConfig, MagnetarError
from .credentials.authentication import Authentication
from .credentials.client_security import TLS_URLS, ClientSecurity

if TYPE_CHECKING:
    import ssl

_Stamp = tuple[tuple[str, int, int, int], ...]


class ClientCredentials:
    """Credentials that a client uses with all servers. Create one per client, as it caches tokens until they expire.

    Methods marked as blocking may read files or call other servers, and must be called on a thread. All methods are
    thread-safe.

    Attributes:
        security: the settings.
        authentication: supplies the credentials; None for an unauthenticated client.
    """

    def __init__(self, security: ClientSecurity | None = None, authentication: Authentication | None = None) -> None:
        """Create credentials; files are read later.

        Args:
            security: settings; None for the defaults.
            authentication: used instead of a plugin named by the settings.

        Raises:
            InvalidConfig: the plugin in the settings is unavailable, or both are set.
        """
        self.security = security or ClientSecurity()
        if authentication is not None:
            if self.security.auth_plugin:
                raise InvalidConfig("authentication and auth_plugin are mutually exclusive")
            if not isinstance(authentication, Authentication):
                raise InvalidConfig(
                    f"invalid authentication of type {type(authentication).__name__}: expected"
                    " AuthenticationToken(…) or another subclass of magnetar.client.Authentication"
                )
        self.authentication = authentication or _named(self.security)
        self._lock = Lock()
        self._context: ssl.SSLContext | None = None
        self._stamp: _Stamp = ()

    @property
    def method(self) -> str:
        """Pulsar's name of the authentication method, or ``none``."""
        return "none" if self.authentication is None else self.authentication.method

    @property
    def has_certificate(self) -> bool:
        """Whether the client has a certificate."""
        ours = None if self.authentication is None else self.authentication.certificate()
        return bool(self.security.tls_certificate_file) or ours is not None

    def check_url(self, *urls: str | None) -> None:
        """Reject TLS settings without a TLS URL.

        Raises:
            InvalidConfig: TLS settings would have no effect; the message names them.
        """
        if any(url is not None and url.startswith(TLS_URLS) for url in urls):
            return
        given = list(self.security.tls_settings)
        if self.method == "tls":
            given.append("authentication method tls")
        if given:
            shown = ", ".join(url for url in urls if url)
            raise InvalidConfig(
                f"{', '.join(given)} requires TLS, which {shown} does not use: use pulsar+ssl:// or https://, or omit"
                " the setting"
            )

    def data(self) -> bytes:
        """Return the ``auth_data`` for CONNECT or the answer to a challenge. Blocking.

        Raises:
            CredentialsUnavailable, ConnectionLost, AuthenticationError: no credentials are available; the message
                contains the reason, but no secrets.
        """
        if self.authentication is None:
            return b""
        try:
            return self.authentication.data()
        except MagnetarError:
            raise
        except Exception as error:  # from user code; its message may contain a secret
            raise self._failed(error) from error

    def headers(self) -> dict[str, str]:
        """Return the headers for an HTTP request. Blocking; raises the same errors as `data`."""
        if self.authentication is None:
            return {}
        try:
            return self.authentication.headers()
        except MagnetarError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> CredentialsUnavailable:
        kind = type(self.authentication).__name__
        return CredentialsUnavailable(f"{kind} raised {type(error).__name__} instead of returning credentials")

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection, which is reused until a file changes. Blocking.

        Raises:
            CredentialsUnavailable: a file cannot be read, or its content cannot be used.
        """
        from .tls import client_context

        certificate = None if self.authentication is None else self.authentication.certificate()
        with self._lock:
            stamp = _stamp((self.security.tls_trust_certs_file, self.security.tls_certificate_file,
                            self.security.tls_key_file, *(certificate or ())))  # fmt: skip
            if self._context is None or stamp != self._stamp:
                self._context = client_context(self.security, certificate)
                self._stamp = stamp
            return self._context


def _named(security: ClientSecurity) -> Authentication | None:
    """Return the plugin named in the settings; plugins are imported only if needed."""
    if not security.auth_plugin:
        return None
    from .credentials.plugins import authentication_of

    return authentication_of(security.auth_plugin, security.auth_params)


def _stamp(files: tuple[str, ...]) -> _Stamp:
    """Return a stamp that changes when a file is written or replaced; missing files are skipped."""
    stamps = []
    for file in files:
        try:
            stat = os.stat(file)
        except OSError:
            continue
        stamps.append((file, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(stamps)
