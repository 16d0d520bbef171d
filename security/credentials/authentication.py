"""Interface of client-side authentication."""

from __future__ import annotations

from abc import ABC, abstractmethod

METHOD_HEADER = "X-Pulsar-Auth-Method-Name"
"""Header that makes a server reject invalid credentials; without it, the request may be treated as anonymous."""


class Authentication(ABC):
    """A client's authentication. Subclass it for custom methods; the constructor receives ``auth_params`` as a string.

    `data` and `headers` may read a file or call another server: they are called on threads, possibly concurrently, for
    each connection, challenge and request. The messages of any `CredentialsUnavailable` and `ConnectionLost` that they
    raise are displayed, so neither these nor ``repr`` may contain secrets.

    Attributes:
        method: the method's name, ``auth_method_name`` of CONNECT: token, basic, tls, or a custom method of the server.
    """

    method: str = ""

    @abstractmethod
    def data(self) -> bytes:
        """Return the ``auth_data`` for CONNECT and the answer to a challenge. Blocking.

        Raises:
            CredentialsUnavailable: no credentials are currently available.
            ConnectionLost: the server that issues them does not respond.
        """

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """Return the headers for an HTTP request; empty for a certificate. Blocking; see `data` for errors."""

    def certificate(self) -> tuple[str, str] | None:
        """Return the paths of the client's certificate and private key (PEM), or None."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
