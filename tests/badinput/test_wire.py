"""Garbage on the broker's port closes that connection and nothing else."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterator

import pulsar
import pytest
from magnetar.wire import pulsar_api_pb2 as pb
from magnetar.wire.frames import DEFAULT_MAX_MESSAGE_BYTES, FRAME_PADDING_BYTES, encode_frame

from tests.support.servers import Server

pytestmark = pytest.mark.slow

CLOSED_S = 5.0
LARGEST = DEFAULT_MAX_MESSAGE_BYTES + FRAME_PADDING_BYTES


@contextlib.contextmanager
def connection(server: Server) -> Iterator[socket.socket]:
    host, port = server.service_url.removeprefix("pulsar://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=CLOSED_S) as it:
        yield it


def is_closed(it: socket.socket) -> bool:
    """True once the broker has closed; raises TimeoutError if it keeps the connection."""
    try:
        while it.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def connect_frame() -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
    command.connect.client_version = "test"
    command.connect.protocol_version = 21
    return encode_frame(command)


@pytest.fixture
def witness(standalone: Server) -> Iterator[pulsar.Producer]:
    """A producer that was connected before, and must not notice."""
    client = pulsar.Client(standalone.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer("witness", send_timeout_millis=3000)
    producer.send(b"before")
    yield producer
    producer.send(b"after")
    assert producer.is_connected()
    client.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\xff" * 64,
        struct.pack(">II", 4, 0),
        struct.pack(">II", 20, 4_000_000_000) + bytes(16),
        struct.pack(">II", 2, 0),
        struct.pack(">II", 12, 8) + b"\xff" * 8,
        encode_frame(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))[:-1] + b"\xff",
    ],
    ids=["http", "ones", "empty-command", "command-beyond-frame", "too-short", "no-protobuf", "damaged-ping"],
)
@pytest.mark.parametrize("greeted", [False, True])
def test_garbage_closes_its_connection_only(
    standalone: Server, witness: pulsar.Producer, garbage: bytes, greeted: bool
) -> None:
    with connection(standalone) as it:
        if greeted:
            it.sendall(connect_frame())
            assert it.recv(65536)
        it.sendall(garbage)
        assert is_closed(it)


def test_random_bytes_never_hurt_the_others(standalone: Server, witness: pulsar.Producer) -> None:
    rng = random.Random(3)
    for _ in range(20):
        with connection(standalone) as it, contextlib.suppress(OSError):
            it.sendall(connect_frame())
            it.sendall(rng.randbytes(rng.randrange(1, 5000)))
            it.shutdown(socket.SHUT_WR)
            is_closed(it)


def test_frame_above_the_limit_closes_the_connection_before_it_is_read(
    standalone: Server, witness: pulsar.Producer
) -> None:
    with connection(standalone) as it:
        it.sendall(connect_frame())
        assert it.recv(65536)
        it.sendall(struct.pack(">I", LARGEST + 1))
        assert is_closed(it)
    assert str(LARGEST + 1) in standalone.log_file.read_text(), "the log names the size"


def test_silent_connection_does_not_hold_the_broker_up(standalone: Server, witness: pulsar.Producer) -> None:
    with connection(standalone), connection(standalone) as half:
        half.sendall(connect_frame()[:5])
        witness.send(b"meanwhile")
