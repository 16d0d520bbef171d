"""What a server can be told about TLS: one frozen record of plain values, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InvalidConfig

VERSIONS = ("TLSv1.2", "TLSv1.3")
"""Protocols that may be spoken."""
MAX_REFRESH_CHECK_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """How a server speaks TLS; all files are PEM.

    Attributes:
        certificate_file: `tlsCertificateFilePath`; the server's certificate, and those between it and the CA.
        key_file: `tlsKeyFilePath`; its key, without a passphrase.
        trust_certs_file: `tlsTrustCertsFilePath`; the CAs whose client certificates are believed. Empty asks for none.
        requires_client_certificate: `tlsRequireTrustedClientCertOnConnect`; else one may be shown.
        crl_file: `tlsCrlFilePath` (ours); revoked client certificates, as the CAs list them.
        protocols: `tlsProtocols`; of TLSv1.2 and TLSv1.3.
        ciphers: `tlsCiphers`; of TLS 1.2, by OpenSSL's names. Empty takes OpenSSL's own choice.
        refresh_check_s: `tlsCertRefreshCheckDurationSec`; how often the files are looked at; 0 is once a second.
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
        """Check each setting alone; what belongs together is checked by `check_together`.

        Raises:
            InvalidConfig: names the setting and what it may be.
        """
        for name in self.protocols:
            if name not in VERSIONS:
                raise InvalidConfig(f"tlsProtocols: {name[:40]!r} is not spoken; give {' or '.join(VERSIONS)}")
        if not self.protocols:
            raise InvalidConfig(f"tlsProtocols is empty; give {' or '.join(VERSIONS)}")
        if not 0 <= self.refresh_check_s <= MAX_REFRESH_CHECK_S:
            raise InvalidConfig(
                f"tlsCertRefreshCheckDurationSec {self.refresh_check_s:g} is out of range; give 0 to"
                f" {MAX_REFRESH_CHECK_S}"
            )

    def check_together(self, port_settings: str) -> None:
        """Check what a listener needs.

        Args:
            port_settings: the names of those that ask for one, for errors.

        Raises:
            InvalidConfig: something is missing.
        """
        for name, value in (("tlsCertificateFilePath", self.certificate_file), ("tlsKeyFilePath", self.key_file)):
            if not value:
                raise InvalidConfig(
                    f"{port_settings} needs {name}; `magnetar certificates create` makes one for trying"
                )
        for name, is_set in (
            ("tlsRequireTrustedClientCertOnConnect", self.requires_client_certificate),
            ("tlsCrlFilePath", bool(self.crl_file)),
        ):
            if is_set and not self.trust_certs_file:
                raise InvalidConfig(f"{name} needs tlsTrustCertsFilePath, which says whose client certificates count")

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        all_files = self.certificate_file, self.key_file, self.trust_certs_file, self.crl_file
        return tuple(file for file in all_files if file)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ServerTls:
        """Return the record of what `dataclasses.asdict` made of one, also after a way through JSON."""
        given = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        kept: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
        return cls(**kept)
