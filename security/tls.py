"""A client's TLS context: trusted authorities, and its own certificate."""

from __future__ import annotations

import ssl

from ..errors import CredentialsUnavailable
from ..wire.printable import one_line
from .credentials.client_security import ClientSecurity

MINIMUM_VERSION = ssl.TLSVersion.TLSv1_2
"""Minimum TLS version of servers and clients, as earlier versions are insecure."""


def client_context(security: ClientSecurity, certificate: tuple[str, str] | None = None) -> ssl.SSLContext:
    """Return a client's TLS context. Blocking: reads the files.

    Args:
        security: the client's settings.
        certificate: paths of a certificate and its key, used if the settings name none.

    Raises:
        CredentialsUnavailable: a file cannot be read, or its content is invalid or does not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = MINIMUM_VERSION
    if security.tls_allow_insecure_connection:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = security.tls_hostname_verification
        _trust(context, security.tls_trust_certs_file)
    if security.tls_certificate_file:
        certificate = (security.tls_certificate_file, security.tls_key_file)
    if certificate is not None:
        _show(context, *certificate)
    return context


def _trust(context: ssl.SSLContext, file: str) -> None:
    if not file:
        context.load_default_certs()
        found = ssl.get_default_verify_paths()
        if found.cafile is None and found.capath is None:  # a system without certificates, such as a small container
            import certifi

            context.load_verify_locations(cafile=certifi.where())
        return
    try:
        context.load_verify_locations(cafile=file)
    except OSError as error:
        raise CredentialsUnavailable(_said("trusted certificates", file, error)) from error


def _show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    def refuse() -> str:
        raise CredentialsUnavailable(f"private key {key} is password-protected: use a key without a password")

    try:
        context.load_cert_chain(certificate, key, password=refuse)
    except OSError as error:
        raise CredentialsUnavailable(_said("certificate", f"{certificate} with key {key}", error)) from error


def _said(what: str, file: str, error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{what} {file}: invalid PEM, or key mismatch: {error.reason or one_line(str(error))}"
    return f"cannot read {what} {file}: {error.strerror or error}"
