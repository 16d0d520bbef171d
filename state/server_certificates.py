"""TLS of the table service: its certificate, reloaded when the files change.

gRPC requests the certificate for each new connection and receives the cached one; the files are checked periodically.
If they cannot be used, the previous certificate remains in use and an error is logged, as in `security.server_tls`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc

from ..errors import InvalidConfig
from ..security.server_tls import file_marks, make_context
from ..security.server_tls_settings import VERSIONS, ServerTls

log = logging.getLogger(__name__)


def check_settings(settings: ServerTls) -> None:
    """Reject TLS settings that gRPC does not support.

    Raises:
        InvalidConfig: a setting is unsupported; the message contains its name and the remedy.
    """
    settings.check_together("TLS of the state store")
    if set(settings.protocols) != set(VERSIONS):
        raise InvalidConfig(f"tlsProtocols cannot be changed for the state store: expected {' and '.join(VERSIONS)}")
    if settings.ciphers:
        raise InvalidConfig("tlsCiphers is not supported by the state store: remove it")
    if settings.crl_file:
        raise InvalidConfig("tlsCrlFilePath is not supported by the state store: remove it")
    if settings.trust_certs_file and not settings.requires_client_certificate:
        raise InvalidConfig(
            "tlsTrustCertsFilePath has no effect on the state store without client certificates: set"
            " tlsRequireTrustedClientCertOnConnect too, or remove it"
        )


class ServerCertificates:
    """A server certificate that is reloaded when its files change."""

    def __init__(self, settings: ServerTls, clock: Callable[[], float] = time.monotonic) -> None:
        """Create a certificate, and read its files. Blocking.

        Raises:
            InvalidConfig: a setting is unsupported, or a file cannot be used.
        """
        check_settings(settings)
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()  # gRPC calls `changed` from several threads
        self._looked_s = clock()
        self._seen = file_marks(settings.files)
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials for a server port."""
        required = self._settings.requires_client_certificate
        # The type annotations lack None, which means unchanged.
        return grpc.dynamic_ssl_server_credentials(self._first, self.changed, required)  # type: ignore[arg-type]

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate if its files have changed since the last call, else None. Blocking."""
        with self._lock:
            now_s = self._clock()
            if now_s - self._looked_s < self._settings.refresh_check_s:
                return None
            self._looked_s = now_s
            marks = file_marks(self._settings.files)
            if marks == self._seen:
                return None
            self._seen = marks
            try:
                found = self._read()
            except InvalidConfig as error:
                log.error("cannot load changed TLS files, continuing with the previous certificate: %s", error)
                return None
            if file_marks(self._settings.files) != marks:  # replaced meanwhile: certificate and key may not match
                self._seen = ()
                return None
            log.info("reloaded changed TLS files for new connections")
            return found

    def _read(self) -> grpc.ServerCertificateConfiguration:
        settings = self._settings
        make_context(settings)  # gRPC accepts invalid files here, but then fails on every connection
        try:
            pair = Path(settings.key_file).read_bytes(), Path(settings.certificate_file).read_bytes()
            roots = Path(settings.trust_certs_file).read_bytes() if settings.trust_certs_file else None
        except OSError as error:
            raise InvalidConfig(f"{error.filename} cannot be read: {error.strerror}") from error
        return grpc.ssl_server_certificate_configuration([pair], roots)
