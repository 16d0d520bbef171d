"""Server TLS: a context created from files, and replaced when the files change.

Design: asyncio accepts one context per listener, and certificates can be added to a context but not removed. So the
listener has a context that delegates each connection to the current one. Changed files create a new current context, so
removing a certificate from a file revokes trust in it. If files cannot be read, the current context remains in use and
an error is logged. Files are checked on a thread, once per period, because the event loop must not wait for a disk.

Source: Pulsar's broker.conf, settings `tls…`; RFC 8996 for the minimum version TLS 1.2.
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
"""Interval for checking files if the setting requests a check on each connection."""

log = logging.getLogger(__name__)


def make_context(settings: ServerTls) -> ssl.SSLContext:
    """Return a server's context. Blocking: reads files.

    Client certificates are requested if `tlsTrustCertsFilePath` is set, and are always verified.

    Raises:
        InvalidConfig: a file cannot be used; the message names its setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = sorted(ssl.TLSVersion[name.replace(".", "_")] for name in settings.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if settings.ciphers:
        try:
            context.set_ciphers(":".join(settings.ciphers))
        except ssl.SSLError as error:
            raise InvalidConfig(
                "tlsCiphers contains no known cipher: use names printed by `openssl ciphers`"
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
    """Return the error for a set of files of which one is missing, unreadable or invalid."""
    pairs = list(zip(names_and_files[::2], names_and_files[1::2], strict=True))
    for setting, file in pairs:
        try:
            with Path(file).open("rb"):
                pass
        except OSError as error:
            return InvalidConfig(f"{setting}: cannot read {file}: {error.strerror}")
    shown = " and ".join(f"{setting} {file}" for setting, file in pairs)
    return InvalidConfig(f"{shown}: invalid PEM, or the certificate does not match the key")


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
        """Create a context from the files. Blocking: call it on a thread.

        Raises:
            InvalidConfig: the files cannot be used.
        """
        self._settings = settings
        self._seen = file_marks(settings.files)
        self.context = _CurrentContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.current = make_context(settings)

    def reload(self) -> bool:
        """Use changed files for new connections; return whether they were loaded. Blocking: call it on a thread.

        Unusable files are ignored until they change again.
        """
        marks = file_marks(self._settings.files)
        if marks == self._seen:
            return False
        self._seen = marks
        try:
            self.context.current = make_context(self._settings)
        except InvalidConfig as error:
            log.error("cannot use changed TLS files, keeping the previous ones: %s", error)
            return False
        log.info("loaded changed TLS files for new connections")
        return True

    async def keep_current(self, changed: Callable[[], None] = lambda: None) -> None:
        """Check the files periodically and forever; ``changed`` is called after a reload. Cancellation: safe."""
        while True:
            await asyncio.sleep(self._settings.refresh_check_s or MIN_PERIOD_S)
            if await asyncio.to_thread(self.reload):
                changed()


def file_marks(files: tuple[str, ...]) -> tuple[tuple[int, int, int] | None, ...]:
    """Return marks that change when a file is modified or replaced, even by a rename or a link."""

    def mark(file: str) -> tuple[int, int, int] | None:
        try:
            found = Path(file).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    return tuple(mark(file) for file in files)
