"""A server's TLS settings: a frozen record of plain values, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InvalidConfig

VERSIONS = ("TLSv1.2", "TLSv1.3")
"""Supported protocol versions."""
MAX_REFRESH_CHECK_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """TLS settings of a server; all files are PEM.

    Attributes:
        certificate_file: `tlsCertificateFilePath`; the server's certificate and intermediate certificates.
        key_file: `tlsKeyFilePath`; the certificate's private key, without a passphrase.
        trust_certs_file: `tlsTrustCertsFilePath`; the CAs trusted for client certificates. If empty, none are
            requested.
        requires_client_certificate: `tlsRequireTrustedClientCertOnConnect`; otherwise client certificates are optional.
        crl_file: `tlsCrlFilePath` (an extension); certificate revocation lists of the CAs.
        protocols: `tlsProtocols`; any of TLSv1.2 and TLSv1.3.
        ciphers: `tlsCiphers`; TLS 1.2 ciphers with OpenSSL's names. If empty, OpenSSL's defaults apply.
        refresh_check_s: `tlsCertRefreshCheckDurationSec`; interval for checking the files; 0 means once a second.
    """

    certificate_file: str = ""
    key_file: str = ""
    trust_certs_file: str = ""
    requires_client_certificate: bool = False
    crl_file: str = ""
    protocols: tuple[str, ...] = VERSIONS
    ciphers: tuple[str, ...] = ()
    refresh_check_s: float = 300.0

    def __post_init__(self) -> None:
        """Validate each setting individually; `check_together` validates combinations.

        Raises:
            InvalidConfig: a setting is invalid; the message names it and the allowed values.
        """
        for name in self.protocols:
            if name not in VERSIONS:
                raise InvalidConfig(f"unsupported tlsProtocols value {name[:40]!r}: expected {' or '.join(VERSIONS)}")
        if not self.protocols:
            raise InvalidConfig(f"tlsProtocols is empty: expected {' or '.join(VERSIONS)}")
        if not 0 <= self.refresh_check_s <= MAX_REFRESH_CHECK_S:
            raise InvalidConfig(
                f"invalid tlsCertRefreshCheckDurationSec {self.refresh_check_s:g}: expected 0 to {MAX_REFRESH_CHECK_S}"
            )

    def check_together(self, port_settings: str) -> None:
        """Validate that the settings suffice for a TLS listener.

        Args:
            port_settings: names of the settings that enable the listener, for errors.

        Raises:
            InvalidConfig: a required setting is missing.
        """
        for name, value in (("tlsCertificateFilePath", self.certificate_file), ("tlsKeyFilePath", self.key_file)):
            if not value:
                raise InvalidConfig(
                    f"{port_settings} requires {name}: create a test certificate with `magnetar certificates create`"
                )
        for name, is_set in (
            ("tlsRequireTrustedClientCertOnConnect", self.requires_client_certificate),
            ("tlsCrlFilePath", bool(self.crl_file)),
        ):
            if is_set and not self.trust_certs_file:
                raise InvalidConfig(f"{name} requires tlsTrustCertsFilePath, which names the trusted client CAs")

    @property
    def files(self) -> tuple[str, ...]:
        """All configured files."""
        all_files = self.certificate_file, self.key_file, self.trust_certs_file, self.crl_file
        return tuple(file for file in all_files if file)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ServerTls:
        """Return the record from the result of `dataclasses.asdict`, even after a round trip through JSON."""
        given = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        kept: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
        return cls(**kept)
