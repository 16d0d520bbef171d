"""Diagnosis of a server that does not respond like a broker, with the remedy.

The first bytes of a response identify most servers. A TLS port may close a plain connection without a response, and a
plain port may close a TLS handshake. In that case a second connection, without credentials, tests the other kind.
"""

from __future__ import annotations

import asyncio
import ssl

from ...errors import ForeignProtocol, MagnetarError, TlsFailed
from ...wire.commands import connect_command, wrap
from ...wire.frames import encode_frame
from .service_url import DEFAULT_PORT, DEFAULT_TLS_PORT, SCHEME, TLS_SCHEME, HostPort

_HTTP = (b"HTTP/", b"<")
"""Status line, or an HTML page without one, which some servers send for invalid requests."""
_TLS = (b"\x15\x03", b"\x16\x03")
"""The first bytes of an alert and of a handshake message."""
_SHOWN_BYTES = 16
PROBE_TIMEOUT_S = 1.0
_ANSWER_MAX_BYTES = 1 << 16
"""Upper bound on the size of CONNECTED and ERROR."""


def foreign(where: HostPort, data: bytes, *, is_tls: bool) -> ForeignProtocol:
    """Return the error for initial bytes that no broker sends.

    Args:
        where: the server that sent them.
        data: the bytes.
        is_tls: whether the connection has TLS.
    """
    scheme, port = (TLS_SCHEME, DEFAULT_TLS_PORT) if is_tls else (SCHEME, DEFAULT_PORT)
    address = f"{scheme}{HostPort(where.host, port)}"
    if data.startswith(_HTTP):
        return ForeignProtocol(f"{where} is an HTTP port: use the broker's service port, for example {address}")
    if data.startswith(_TLS) and not is_tls:
        return _tls_port(where)
    return ForeignProtocol(
        f"{where} does not speak Pulsar's binary protocol (it answered {data[:_SHOWN_BYTES]!r}): use a broker address,"
        f" for example {address}"
    )


async def other_kind(where: HostPort, *, is_tls: bool) -> MagnetarError | None:
    """Return the error if a broker's port requires TLS and the connection has none, or vice versa; otherwise None.

    Cancellation: safe.

    Args:
        where: the server that closed a connection before sending anything.
        is_tls: whether that connection had TLS.
    """
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            if not is_tls:
                return _tls_port(where) if await _speaks_tls(where) else None
            if await _speaks_plainly(where):
                return TlsFailed(f"{where} does not speak TLS: use {SCHEME}{where}, or the TLS port")
    except (OSError, TimeoutError):
        pass
    return None


def _tls_port(where: HostPort) -> ForeignProtocol:
    return ForeignProtocol(f"{where} is a TLS port: use {TLS_SCHEME}{where}, or the port without TLS")


async def _speaks_tls(where: HostPort) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # safe, as nothing is sent and received data is not used
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
