"""TLS of servers: a context from files, and its exchange when the files change.

Design: asyncio takes one context for a listener, and a context can only gain certificates, never lose one. So the
listener is given a context that makes each connection by another one, the current: new files make a new current one,
and a certificate that was taken out of a file is trusted no more. Files that cannot be read leave the current one, and
a line in the log. The files are looked at in a thread, once a period, as nothing may wait for a disk on an event loop.

Source: Pulsar's broker.conf, settings `tls…`; RFC 8996 for the minimum of TLS 1.2.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import InvalidConfig
from .server_tls_settings import ServerTls

MIN_PERIOD_S = 1.0
"""How often files are looked at where the setting says: at each connection."""

log = logging.getLogger(__name__)


def make_context(settings: ServerTls) -> ssl.SSLContext:
    """Return the context of a server; reads files, so never on an event loop.

    Client certificates are asked for where `tlsTrustCertsFilePath` says whom to believe, and always verified.

    Raises:
        InvalidConfig: names the setting whose file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = sorted(ssl.TLSVersion[name.replace(".", "_")] for name in settings.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if settings.ciphers:
        try:
            context.set_ciphers(":".join(settings.ciphers))
        except ssl.SSLError as error:
            raise InvalidConfig(
                "tlsCiphers names no cipher of OpenSSL; give names as `openssl ciphers` does"
            ) from error
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        # A key with a passphrase would be asked for on the terminal.
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise _bad_files(
            "tlsCertificateFilePath", settings.certificate_file, "tlsKeyFilePath", settings.key_file
        ) from error
    if settings.trust_certs_file:
        _trust(context, "tlsTrustCertsFilePath", settings.trust_certs_file)
        # A session that is taken up again does not show the certificate anew, which may have ended or been revoked.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_REQUIRED if settings.requires_client_certificate else ssl.CERT_OPTIONAL
        if settings.crl_file:
            _trust(context, "tlsCrlFilePath", settings.crl_file)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def _trust(context: ssl.SSLContext, setting: str, file: str) -> None:
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError) as error:
        raise _bad_files(setting, file) from error


def _bad_files(*names_and_files: str) -> InvalidConfig:
    """Return the error for files of which one is missing, not readable, or not what it should be."""
    pairs = list(zip(names_and_files[::2], names_and_files[1::2], strict=True))
    for setting, file in pairs:
        try:
            with Path(file).open("rb"):
                pass
        except OSError as error:
            return InvalidConfig(f"{setting}: {file} cannot be read: {error.strerror}")
    shown = " and ".join(f"{setting} {file}" for setting, file in pairs)
    return InvalidConfig(f"{shown}: no PEM that TLS can use, or certificate and key are no pair")


class _CurrentContext(ssl.SSLContext):
    """A context whose connections are made by the one that is current."""

    current: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Begin the TLS of one connection; called by the event loop."""
        return self.current.wrap_bio(*arguments, **named)


class TlsServerContext:
    """The TLS of one server's listeners.

    Attributes:
        context: what they are made with.
    """

    def __init__(self, settings: ServerTls) -> None:
        """Read the files; in a thread.

        Raises:
            InvalidConfig: they cannot be used.
        """
        self._settings = settings
        self._seen = file_marks(settings.files)
        self.context = _CurrentContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.current = make_context(settings)

    def reload(self) -> bool:
        """Take changed files from the next connection on, and return whether they changed; in a thread.

        Files that cannot be used change nothing, and are looked at again when they change again.
        """
        marks = file_marks(self._settings.files)
        if marks == self._seen:
            return False
        self._seen = marks
        try:
            self.context.current = make_context(self._settings)
        except InvalidConfig as error:
            log.error("the files of TLS have changed and cannot be used, the former ones stay in force: %s", error)
            return False
        log.info("the files of TLS have changed; new connections use them")
        return True

    async def keep_current(self, changed: Callable[[], None] = lambda: None) -> None:
        """Look at the files once a period, for ever; ``changed`` is called after a change. Cancellation: safe."""
        while True:
            await asyncio.sleep(self._settings.refresh_check_s or MIN_PERIOD_S)
            if await asyncio.to_thread(self.reload):
                changed()


def file_marks(files: tuple[str, ...]) -> tuple[tuple[int, int, int] | None, ...]:
    """Return what tells whether a file is another one, also where it was exchanged by a rename or a link."""

    def mark(file: str) -> tuple[int, int, int] | None:
        try:
            found = Path(file).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    return tuple(mark(file) for file in files)
