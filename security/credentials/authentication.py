"""The interface of client-side authentication."""

from __future__ import annotations

from abc import ABC, abstractmethod

METHOD_HEADER = "X-Pulsar-Auth-Method-Name"
"""With this header a server refuses an invalid credential; without it, it may treat the request as anonymous."""


class Authentication(ABC):
    """A client's authentication. Subclass it for a custom method; the constructor receives ``auth_params`` as one text.

    `data` and `headers` may read a file or call another server: they are called on a thread, never on an event loop,
    possibly concurrently, for each connection, challenge and request. The texts of the `CredentialsUnavailable` and
    `ConnectionLost` that they raise are shown, so neither these nor ``repr`` may contain secrets.

    Attributes:
        method: the method's name, ``auth_method_name`` of CONNECT: token, basic, tls, or a custom method of the server.
    """

    method: str = ""

    @abstractmethod
    def data(self) -> bytes:
        """Return the ``auth_data`` for CONNECT and the answer to a challenge. Blocking.

        Raises:
            CredentialsUnavailable: no credentials are available now.
            ConnectionLost: the server that issues them does not respond.
        """

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """Return the headers for an HTTP request; empty for a certificate. Blocking; raises as `data`."""

    def certificate(self) -> tuple[str, str] | None:
        """Return the paths of the client's certificate and private key (PEM), or None."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
