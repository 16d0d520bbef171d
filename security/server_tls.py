"""Server TLS: a context created from files, and replaced when the files change.

Design: asyncio takes one context per listener, and certificates can be added to a context but not removed. So the
listener gets a context that delegates each connection to the current one: changed files create a new current context,
and a certificate removed from a file is not trusted any more. If files cannot be read, the current context stays and an
error is logged. The files are checked in a thread, once per period, as the event loop must not wait for a disk.

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
"""Minimum interval for checking files, for the setting that means at each connection."""

log = logging.getLogger(__name__)


def make_context(settings: ServerTls) -> ssl.SSLContext:
    """Return a server's context; reads files, so do not call it on an event loop.

    Client certificates are requested if `tlsTrustCertsFilePath` is set, and are always verified.

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
        # Without a callback, OpenSSL would prompt for the passphrase on the terminal.
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise _bad_files(
            "tlsCertificateFilePath", settings.certificate_file, "tlsKeyFilePath", settings.key_file
        ) from error
    if settings.trust_certs_file:
        _trust(context, "tlsTrustCertsFilePath", settings.trust_certs_file)
        # A resumed session does not present the certificate again, which may have expired or been revoked.
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
    """Return the error for files of which one is missing, unreadable or invalid."""
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
    """A context that delegates new connections to the current context."""

    current: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Start TLS on a connection (called by the event loop)."""
        return self.current.wrap_bio(*arguments, **named)


class TlsServerContext:
    """The TLS context of a server's listeners, which can be reloaded.

    Attributes:
        context: the context to create listeners with.
    """

    def __init__(self, settings: ServerTls) -> None:
        """Read the files; call it in a thread.

        Raises:
            InvalidConfig: the files cannot be used.
        """
        self._settings = settings
        self._seen = file_marks(settings.files)
        self.context = _CurrentContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.current = make_context(settings)

    def reload(self) -> bool:
        """Use changed files for new connections; return whether they are used. Call it in a thread.

        Files that cannot be used are ignored until they change again.
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
