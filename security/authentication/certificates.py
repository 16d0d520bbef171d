"""Mutual TLS: the role is the common name of the client's certificate, which the TLS layer has verified.

Source: Pulsar's AuthenticationProviderTls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import AuthenticationError
from .provider import AuthenticationProvider, Identity, Peer


def common_name(certificate: Mapping[str, Any]) -> str | None:
    """Return the common name of a certificate's subject, given as in `ssl.SSLSocket.getpeercert`.

    If there are several, the last and most specific one counts, which is the first in the string form that Pulsar
    reads.
    """
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return str(names[-1]) if names and names[-1] else None


class TlsProvider(AuthenticationProvider):
    """`AuthenticationProviderTls`."""

    method = "tls"
    is_blocking = False

    def authenticate(self, data: bytes, peer: Peer, now_s: float) -> Identity:
        """Return the identity in the certificate."""
        if not peer.certificate:
            raise AuthenticationError("no client certificate")
        role = common_name(peer.certificate)
        if role is None or not role.strip():
            raise AuthenticationError("the client certificate has no common name")
        return Identity(role)

    def http_data(self, headers: Mapping[str, str], peer: Peer) -> bytes | None:
        """Return empty data if the client has a certificate, else None."""
        return b"" if peer.certificate else None
