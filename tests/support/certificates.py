"""A small certificate authority for tests, with certificates as PEM files."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = timedelta(days=2)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key.

    Attributes:
        file: certificate file (PEM).
        key_file: private key file (PKCS#8, PEM, without a password).
        serial_number: serial number of the certificate.
    """

    file: Path
    key_file: Path
    serial_number: int


@dataclass
class Authority:
    """A certificate authority whose files are in one directory.

    Attributes:
        directory: directory of all files.
        name: common name of the authority's certificate.
        file: the authority's certificate (PEM), which clients trust.
    """

    directory: Path
    name: str = "Test CA"
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(self.name)
        now = datetime.now(UTC)
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFE)
            .not_valid_after(now + LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = self.directory / "ca.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        common_name: str,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        *,
        file_name: str = "",
        is_expired: bool = False,
    ) -> Certificate:
        """Write a certificate for servers and clients.

        Args:
            common_name: common name of the subject, which is a client's role.
            hosts: host names and addresses that the certificate is valid for.
            file_name: name of the files without a suffix; the common name by default.
            is_expired: whether the certificate expired yesterday.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        begin, end = (now - LIFE, now - LIFE / 2) if is_expired else (now - LIFE / 2, now + LIFE / 2)
        serial_number = x509.random_serial_number()
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common_name))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(serial_number)
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
        stem = file_name or common_name
        file, key_file = self.directory / f"{stem}.pem", self.directory / f"{stem}.key.pem"
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return Certificate(file, key_file, serial_number)

    def revoke(self, *serial_numbers: int) -> Path:
        """Write a revocation list (PEM), and return its file."""
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now - timedelta(hours=1))
            .next_update(now + LIFE)
        )
        for number in serial_numbers:
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now - timedelta(hours=1))
            builder = builder.add_revoked_certificate(revoked.build())
        file = self.directory / "crl.pem"
        file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return file


def server_context(
    certificate: Certificate, client_authority: Authority | None = None, *, requires_certificate: bool = False
) -> ssl.SSLContext:
    """Return the TLS settings of a test server.

    Args:
        certificate: certificate of the server.
        client_authority: authority of client certificates, which are then requested.
        requires_certificate: whether clients without a certificate are rejected.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key_file)
    if client_authority is not None:
        context.load_verify_locations(client_authority.file)
        context.verify_mode = ssl.CERT_REQUIRED if requires_certificate else ssl.CERT_OPTIONAL
    return context


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
