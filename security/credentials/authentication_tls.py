"""Authentication with a client certificate, whose common name is the role."""

from __future__ import annotations

import json
from typing import Any

from ...errors import InvalidConfig
from .authentication import Authentication

_FORMS = "expected tlsCertFile:/path/cert.pem,tlsKeyFile:/path/key.pem"
_CERTIFICATE, _KEY = "tlsCertFile", "tlsKeyFile"


class AuthenticationTls(Authentication):
    """Presents a certificate in the TLS handshake; works with ``pulsar+ssl`` and ``https`` only."""

    method = "tls"

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        """Create the credentials; the files are read for each connection.

        Args:
            certificate_path: file with the certificate (PEM), followed by intermediate certificates.
            private_key_path: file with the certificate's private key (PEM), without a password.

        Raises:
            InvalidConfig: a path is empty.
        """
        if not certificate_path or not private_key_path:
            raise InvalidConfig(f"authentication method tls requires certificate and key files: {_FORMS}")
        self._files = (str(certificate_path), str(private_key_path))

    def data(self) -> bytes:
        """Return no data, as the certificate is sufficient."""
        return b""

    def headers(self) -> dict[str, str]:
        """Return no headers, as the certificate is sufficient."""
        return {}

    def certificate(self) -> tuple[str, str]:
        """Return the paths of the certificate and its key."""
        return self._files

    def __repr__(self) -> str:
        return f"AuthenticationTls({self._files[0]!r}, {self._files[1]!r})"


def tls_of(params: str) -> AuthenticationTls:
    """Parse ``tlsCertFile:P,tlsKeyFile:P``, or a JSON object with these names.

    Raises:
        InvalidConfig: a name is missing or unknown.
    """
    values: Any
    if params.strip().startswith("{"):
        try:
            values = json.loads(params)
        except ValueError:
            raise InvalidConfig(f"invalid parameters of method tls: not valid JSON: {_FORMS}") from None
    else:
        parts = (part.strip().partition(":") for part in params.split(",") if part.strip())
        values = {name: value.removeprefix("//") if value.startswith("///") else value for name, _, value in parts}
    if set(values) != {_CERTIFICATE, _KEY} or not all(isinstance(value, str) for value in values.values()):
        raise InvalidConfig(f"invalid parameters of method tls: {_CERTIFICATE} and {_KEY} required: {_FORMS}")
    return AuthenticationTls(values[_CERTIFICATE], values[_KEY])
