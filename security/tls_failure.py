"""Translates TLS errors of a connection to causes and remedies."""

from __future__ import annotations

import ssl

from ..errors import TlsFailed
from ..wire.printable import one_line

_OTHER_HOST = (62, 63, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH, _EMAIL_MISMATCH and _IP_ADDRESS_MISMATCH."""
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
"""OpenSSL's errors for a certificate whose issuer is unknown, or that is self-signed."""
_OR_SKIP_HOST = ", or disable tls_hostname_verification"
_IN_FILES = "in servers and functions: brokerClientTrustCertsFilePath"


def tls_failure(where: str, error: BaseException, *, may_skip_host: bool = True) -> TlsFailed | None:
    """Return the `TlsFailed` for a TLS error that a retry cannot fix, or None for any other error.

    Args:
        where: the server.
        error: the exception raised when the connection was opened or closed.
        may_skip_host: whether to suggest turning off `tls_hostname_verification`.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = ""
        if error.verify_code in _OTHER_HOST:
            remedy = ": connect with a host name in the certificate" + _OR_SKIP_HOST * may_skip_host
        elif error.verify_code in _UNKNOWN_ISSUER:
            remedy = f": set tls_trust_certs_file to the CA that issued it ({_IN_FILES})"
        reason = one_line(error.verify_message).rstrip(".")
        return TlsFailed(f"rejected the certificate of {where}: {reason}{remedy}")
    if not isinstance(error, ssl.SSLError) or isinstance(
        error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError
    ):
        return None  # the connection was lost
    words = one_line(str(error.reason or error)).replace("_", " ").lower()
    if "certificate required" in words or "handshake failure" in words:
        return TlsFailed(f"{where} closed the TLS connection ({words}): use a client certificate that it trusts")
    if "alert" in words:
        return TlsFailed(f"{where} rejected the TLS connection: {words}")
    if "wrong version number" in words or "record layer failure" in words or "http request" in words:
        return TlsFailed(f"{where} does not speak TLS ({words}): use its TLS port")
    return TlsFailed(f"TLS connection with {where} failed: {words}")
