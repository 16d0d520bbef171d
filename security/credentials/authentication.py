"""The interface of what a client shows to a server to say who it is."""

from __future__ import annotations

from abc import ABC, abstractmethod

METHOD_HEADER = "X-Pulsar-Auth-Method-Name"
"""With it a server refuses a wrong credential, where it would else take the request for one without any."""


class Authentication(ABC):
    """What a client shows. A class of your own implements it; its constructor is given ``auth_params`` as one text.

    `data` and `headers` may read a file or ask another server: they are called on a thread, never on an event loop,
    maybe by several threads at once, anew for each connection, challenge and request. What they raise as
    `CredentialsUnavailable` or `ConnectionLost` is shown; it must not hold a secret, nor may ``repr``.

    Attributes:
        method: Pulsar's name of the method, ``auth_method_name`` of CONNECT: token, basic, tls, or one of the server's.
    """

    method: str = ""

    @abstractmethod
    def data(self) -> bytes:
        """Return the ``auth_data`` of CONNECT and of the answer to a challenge. Blocking.

        Raises:
            CredentialsUnavailable: there is nothing to show now.
            ConnectionLost: who gives it out does not answer.
        """

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """Return the headers of an HTTP request, none for a certificate alone. Blocking; raises as `data`."""

    def certificate(self) -> tuple[str, str] | None:
        """Return the files of the client's certificate and its private key (PEM); None without."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
