"""What listens at an address that does not answer as a broker does, with the remedy.

The first bytes of an answer tell most of it. A port with TLS may end a plain connection without a word, and a plain
port a TLS handshake; then one more connection finds out whether the other way works. It shows no credentials.
"""

from __future__ import annotations

import asyncio
import ssl

from ...errors import ForeignProtocol, MagnetarError, TlsFailed
from ...wire.commands import connect_command, wrap
from ...wire.frames import encode_frame
from .service_url import DEFAULT_PORT, DEFAULT_TLS_PORT, SCHEME, TLS_SCHEME, HostPort

_HTTP = (b"HTTP/", b"<")
"""A status line, or a page without one, as some servers answer what they cannot parse."""
_TLS = (b"\x15\x03", b"\x16\x03")
"""The first bytes of an alert and of a handshake message."""
_SHOWN_BYTES = 16
PROBE_TIMEOUT_S = 1.0
_ANSWER_MAX_BYTES = 1 << 16
"""More than CONNECTED or ERROR takes."""


def foreign(where: HostPort, data: bytes, *, is_tls: bool) -> ForeignProtocol:
    """Return the error for bytes that no broker begins with.

    Args:
        where: the server that sent them.
        data: the bytes.
        is_tls: whether the connection has TLS.
    """
    scheme, port = (TLS_SCHEME, DEFAULT_TLS_PORT) if is_tls else (SCHEME, DEFAULT_PORT)
    address = f"{scheme}{HostPort(where.host, port)}"
    if data.startswith(_HTTP):
        return ForeignProtocol(f"{where} is an HTTP port: use the broker's own port, for example {address}")
    if data.startswith(_TLS) and not is_tls:
        return _tls_port(where)
    return ForeignProtocol(
        f"{where} does not speak Pulsar's binary protocol, it answered {data[:_SHOWN_BYTES]!r}: use the address of a"
        f" broker, for example {address}"
    )


async def other_kind(where: HostPort, *, is_tls: bool) -> MagnetarError | None:
    """Return the error for a broker's port that wants TLS and gets none, or the other way round; None if it is neither.

    Cancellation: safe.

    Args:
        where: the server, which ended a connection before its first word.
        is_tls: whether that connection had TLS.
    """
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            if not is_tls:
                return _tls_port(where) if await _speaks_tls(where) else None
            if await _speaks_plainly(where):
                return TlsFailed(f"{where} does not speak TLS: use {SCHEME}{where}, or the port with TLS")
    except (OSError, TimeoutError):
        pass
    return None


def _tls_port(where: HostPort) -> ForeignProtocol:
    return ForeignProtocol(f"{where} is a port with TLS: use {TLS_SCHEME}{where}, or the port without")


async def _speaks_tls(where: HostPort) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent, and nothing that comes is used
    _, writer = await asyncio.open_connection(*where, ssl=context)
    writer.transport.abort()
    return True


async def _speaks_plainly(where: HostPort) -> bool:
    reader, writer = await asyncio.open_connection(*where)
    try:
        writer.write(encode_frame(wrap(connect_command("probe", None))))
        head = await reader.readexactly(8)
    except asyncio.IncompleteReadError:
        return False
    finally:
        writer.transport.abort()
    total, command_bytes = int.from_bytes(head[:4]), int.from_bytes(head[4:])
    return total == command_bytes + 4 <= _ANSWER_MAX_BYTES
