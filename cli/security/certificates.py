"""``magnetar certificates``: a small CA and its certificates, for testing TLS."""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...web.same_site import host_name
from ..failure import Failure, Group
from ..output import print_json
from ..settings import current
from .files import write_new

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

DEFAULT_HOSTS = ("localhost", "127.0.0.1", "::1")
MAX_DAYS = 3650
_ROLE = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_.@-]{0,63}")
_RESERVED = ("ca", "server")
_CLOCK_SKEW = timedelta(hours=1)


@click.group(cls=Group)
def certificates() -> None:
    """Create certificates for testing TLS; do not use them in production."""


@certificates.command()
@click.option("--directory", default="certificates", show_default=True, metavar="DIR", help="Directory for the files.")
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="Name or address of the server (default: localhost)."
)
@click.option(
    "--client", "clients", multiple=True, metavar="ROLE", help="Also create a client certificate for this role."
)
@click.option(
    "--days", type=click.IntRange(1, MAX_DAYS), default=365, show_default=True, help="Validity of the certificates."
)
@click.pass_context
def create(ctx: click.Context, directory: str, hosts: tuple[str, ...], clients: tuple[str, ...], days: int) -> None:
    """Create a CA and a server certificate, or further certificates of an existing CA in the directory."""
    for role in clients:
        if not _ROLE.fullmatch(role) or role in _RESERVED:
            raise Failure(
                f"--client {role[:80]!a} cannot be used as a file name: expected letters, digits, - _ . and @"
            )
    names = tuple(host_name(name) for name in hosts)
    place = Path(directory)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"--directory {directory} cannot be created: {error.strerror}") from error
    authority = Authority.of(place, days)
    if names or not (place / "server.pem").exists():
        authority.issue("server", names[0] if names else "localhost", names or DEFAULT_HOSTS)
    for role in clients:
        authority.issue(role, role, ())
    settings = {
        "tlsCertificateFilePath": str(place.absolute() / "server.pem"),
        "tlsKeyFilePath": str(place.absolute() / "server.key.pem"),
        "tlsTrustCertsFilePath": str(place.absolute() / "ca.pem"),
    }
    if current(ctx).output == "json":
        print_json(settings)
        return
    for name, value in settings.items():
        click.echo(f"{name}={value}")
    for role in clients:
        click.echo(
            f"# {role} authenticates with tlsCertFile:{place / f'{role}.pem'},tlsKeyFile:{place / f'{role}.key.pem'}"
        )


class Authority:
    """A certificate authority with its files in a directory."""

    def __init__(self, place: Path, key: EllipticCurvePrivateKey, certificate: x509.Certificate, days: int) -> None:
        self._place = place
        self._key = key
        self._certificate = certificate
        self._days = days

    @classmethod
    def of(cls, place: Path, days: int) -> Authority:
        """Return the CA in a directory, creating it if missing.

        Raises:
            Failure: its files cannot be read or written.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        file, key_file = place / "ca.pem", place / "ca.key.pem"
        if not file.exists() and not key_file.exists():
            return cls._made(place, days)
        try:
            certificate = x509.load_pem_x509_certificate(file.read_bytes())
            key = load_pem_private_key(key_file.read_bytes(), None)
        except OSError as error:
            raise Failure(
                f"the CA in {place} is incomplete, {error.filename}: {error.strerror}; use another --directory"
            ) from error
        except (ValueError, TypeError) as error:
            raise Failure(f"{file} and {key_file} were not created by this command: use another --directory") from error
        if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise Failure(f"{key_file} is not the key of {file}: use another --directory")
        return cls(place, key, certificate, days)

    @classmethod
    def _made(cls, place: Path, days: int) -> Authority:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            digital_signature=False, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        name = _name("Magnetar trial CA")
        certificate = (
            _builder(name, name, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        authority = cls(place, key, certificate, days)
        authority._write("ca", key, certificate)
        return authority

    def issue(self, file_name: str, common_name: str, hosts: tuple[str, ...]) -> None:
        """Write a certificate and its key.

        Args:
            file_name: name of both files, without extension.
            common_name: common name of the subject; the role of a client.
            hosts: host names and addresses of a server; empty for a client.

        Raises:
            Failure: the files already exist, or cannot be written.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        issuer = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            _builder(_name(common_name), self._certificate.subject, key.public_key(), self._days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
        self._write(file_name, key, builder.sign(self._key, hashes.SHA256()))

    def _write(self, file_name: str, key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_new(self._place / f"{file_name}.key.pem", private, is_secret=True)
        write_new(self._place / f"{file_name}.pem", certificate.public_bytes(Encoding.PEM), is_secret=False)


def _builder(subject: x509.Name, issuer: x509.Name, public_key: Any, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(text: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
