"""The security of one client at work: what it shows, and its TLS settings, read anew where files changed."""

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
    """What a client shows to all servers that it talks to; made once, for it keeps tokens until they expire.

    What is said to block may read files or ask other servers: call it on a thread. All of it may be called by several
    threads.

    Attributes:
        security: the settings.
        authentication: shows who the client is; None for nothing.
    """

    def __init__(self, security: ClientSecurity | None = None, authentication: Authentication | None = None) -> None:
        """Prepare; no file is read yet.

        Args:
            security: settings; None for none.
            authentication: instead of a plugin that the settings name.

        Raises:
            InvalidConfig: the settings name no plugin that can be had, or there are two.
        """
        self.security = security or ClientSecurity()
        if authentication is not None:
            if self.security.auth_plugin:
                raise InvalidConfig("authentication and auth_plugin say the same; give one of them")
            if not isinstance(authentication, Authentication):
                raise InvalidConfig(
                    f"authentication is of type {type(authentication).__name__}; give AuthenticationToken(…) or another"
                    " subclass of magnetar.client.Authentication"
                )
        self.authentication = authentication or _named(self.security)
        self._lock = Lock()
        self._context: ssl.SSLContext | None = None
        self._stamp: _Stamp = ()

    @property
    def method(self) -> str:
        """Pulsar's name of the method, ``none`` without."""
        return "none" if self.authentication is None else self.authentication.method

    @property
    def has_certificate(self) -> bool:
        """Whether servers are shown a certificate."""
        ours = None if self.authentication is None else self.authentication.certificate()
        return bool(self.security.tls_certificate_file) or ours is not None

    def check_url(self, *urls: str | None) -> None:
        """Raise if settings of TLS are given and no URL is one of TLS.

        Raises:
            InvalidConfig: names them, with the remedy.
        """
        if any(url is not None and url.startswith(TLS_URLS) for url in urls):
            return
        given = list(self.security.tls_settings)
        if self.method == "tls":
            given.append("authentication by method tls")
        if given:
            shown = ", ".join(url for url in urls if url)
            raise InvalidConfig(
                f"{', '.join(given)} is of use on TLS only, and {shown} has none; give pulsar+ssl:// or https://, or"
                " leave it out"
            )

    def data(self) -> bytes:
        """Return the ``auth_data`` of CONNECT or of the answer to a challenge. Blocking.

        Raises:
            CredentialsUnavailable, ConnectionLost, AuthenticationError: there is none now; says why, without secrets.
        """
        if self.authentication is None:
            return b""
        try:
            return self.authentication.data()
        except MagnetarError:
            raise
        except Exception as error:  # of code of the user's; its text may hold a secret
            raise self._failed(error) from error

    def headers(self) -> dict[str, str]:
        """Return the headers of an HTTP request. Blocking; raises as `data`."""
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
        return CredentialsUnavailable(f"{kind} gave no credentials: it raised {type(error).__name__}")

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings for a new connection, the same as before if no file has changed. Blocking.

        Raises:
            CredentialsUnavailable: a file cannot be read, or holds nothing that fits.
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
    """Return the plugin that settings name; the plugins are imported for those who do."""
    if not security.auth_plugin:
        return None
    from .credentials.plugins import authentication_of

    return authentication_of(security.auth_plugin, security.auth_params)


def _stamp(files: tuple[str, ...]) -> _Stamp:
    """Return by what one sees that a file was written or replaced; a missing one is none's."""
    stamps = []
    for file in files:
        try:
            stat = os.stat(file)
        except OSError:
            continue
        stamps.append((file, stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(stamps)
