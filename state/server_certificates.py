"""TLS of the table service: its certificate, reloaded when the files change.

gRPC asks for the certificate at each new connection, and gets the cached one; the files are checked once per period.
If they cannot be used, the previous certificate stays in use and an error is logged, as in `security.server_tls`.
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
    """Refuse what gRPC cannot do.

    Raises:
        InvalidConfig: names the setting, with the remedy.
    """
    settings.check_together("TLS of the state store")
    if set(settings.protocols) != set(VERSIONS):
        raise InvalidConfig(f"tlsProtocols: the state store speaks {' and '.join(VERSIONS)}, and no choice is left")
    if settings.ciphers:
        raise InvalidConfig("tlsCiphers: the state store has its own choice; remove the line")
    if settings.crl_file:
        raise InvalidConfig("tlsCrlFilePath: the state store reads no such list; remove the line")
    if settings.trust_certs_file and not settings.requires_client_certificate:
        raise InvalidConfig(
            "tlsTrustCertsFilePath: the state store asks every client for a certificate, or none; set"
            " tlsRequireTrustedClientCertOnConnect, too, or remove the line"
        )


class ServerCertificates:
    """The certificate of a service, as its files say."""

    def __init__(self, settings: ServerTls, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files. Blocking.

        Raises:
            InvalidConfig: the settings do not work here, or a file cannot be used.
        """
        check_settings(settings)
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()  # connections are made by several threads
        self._looked_s = clock()
        self._seen = file_marks(settings.files)
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials for a server port."""
        required = self._settings.requires_client_certificate
        # None, for no change, is missing in the types.
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
                log.error("the files of TLS have changed and cannot be used, the former ones stay in force: %s", error)
                return None
            if file_marks(self._settings.files) != marks:  # exchanged meanwhile: certificate and key may be no pair
                self._seen = ()
                return None
            log.info("the files of TLS have changed; new connections use them")
            return found

    def _read(self) -> grpc.ServerCertificateConfiguration:
        settings = self._settings
        make_context(settings)  # gRPC takes whatever it is given, and fails at every connection
        try:
            pair = Path(settings.key_file).read_bytes(), Path(settings.certificate_file).read_bytes()
            roots = Path(settings.trust_certs_file).read_bytes() if settings.trust_certs_file else None
        except OSError as error:
            raise InvalidConfig(f"{error.filename} cannot be read: {error.strerror}") from error
        return grpc.ssl_server_certificate_configuration([pair], roots)
