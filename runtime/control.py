"""Control of an instance in another process, through Pulsar's gRPC service InstanceControl on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty

from ..errors import ConnectionLost
from ..wire.functions_pb2 import FunctionStatus, HealthCheckResult, MetricsData
from .instance_answers import ANSWER_BYTES_MAX, read_answer, read_metrics, read_status

SERVICE = "proto.InstanceControl"
SOCKET_PATH_BYTES_MAX = 107  # the kernel's limit without the terminating null byte
CALL_TIMEOUT_S = 2.0


class Answers(Protocol):
    """Responses of an instance; called on a thread of the service."""

    def status(self) -> FunctionStatus:
        """Return the instance status."""

    def metrics(self) -> MetricsData:
        """Return the instance's counters."""

    def reset(self) -> None:
        """Reset the counters of the last minute and the user metrics."""

    def is_healthy(self) -> bool:
        """Return whether the instance's connection to the broker works."""


def serve(answers: Answers, socket: Path) -> grpc.Server:
    """Start the service; it runs until the process ends, or the returned server is stopped or garbage-collected."""

    def metrics_and_reset(_: Empty) -> MetricsData:
        metrics = answers.metrics()
        answers.reset()
        return metrics

    def reset(_: Empty) -> Empty:
        answers.reset()
        return Empty()

    methods = {
        "GetFunctionStatus": lambda _: answers.status(),
        "GetAndResetMetrics": metrics_and_reset,
        "ResetMetrics": reset,
        "GetMetrics": lambda _: answers.metrics(),
        "HealthCheck": lambda _: HealthCheckResult(success=answers.is_healthy()),
    }
    handlers = {name: _handler(method) for name, method in methods.items()}
    threads = ThreadPoolExecutor(1, "control")
    threads.submit(int).result()  # create the thread before user code runs, as that may replace the threading module
    server = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    with contextlib.suppress(FileNotFoundError):
        socket.unlink()
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def _handler(method: Callable[[Empty], object]) -> grpc.RpcMethodHandler[Empty, object]:
    return grpc.unary_unary_rpc_method_handler(
        lambda request, _: method(request),
        request_deserializer=Empty.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )


class ControlClient:
    """Client for an instance; bound to the event loop of its first call."""

    def __init__(self, socket: Path, user: int | None = None) -> None:
        """Create a client that connects on its first call.

        Args:
            socket: socket of the instance.
            user: id of the user that must own the socket; None for no check.
        """
        self._socket = socket
        self._user = user
        self._held = -1
        self._target = f"unix:{socket}"
        self._channel: grpc.aio.Channel | None = None

    async def status(self) -> FunctionStatus:
        """Return the instance's status; raises as `_call`."""
        return read_status(await self._call("GetFunctionStatus"))

    async def check_health(self) -> None:
        """Check that the instance is healthy.

        Raises:
            ConnectionLost: the instance does not respond, or reports that it is unhealthy.
        """
        if not read_answer(HealthCheckResult, await self._call("HealthCheck")).success:
            raise ConnectionLost(f"instance {self._target} reported that its event loop is blocked")

    async def metrics(self) -> MetricsData:
        """Return the instance's counters; raises as `_call`."""
        return read_metrics(await self._call("GetMetrics"))

    async def _call(self, method: str) -> bytes:
        """Send a request.

        Raises:
            ConnectionLost: no response within `CALL_TIMEOUT_S`.
        """
        if self._channel is None:
            if (
                not self._socket.exists()
            ):  # after a failure, a channel fails immediately until its next connection attempt
                raise ConnectionLost(f"no response from {self._target} to {method}: the instance is starting")
            self._channel = grpc.aio.insecure_channel(
                self._target if self._user is None else self._checked_target(self._user),
                options=[
                    ("grpc.initial_reconnect_backoff_ms", 50),
                    ("grpc.max_reconnect_backoff_ms", 500),
                    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
                ],
            )
        call = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=lambda answer: answer,
        )
        try:
            answer: bytes = await call(Empty(), timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise ConnectionLost(f"no response from {self._target} to {method}: {error.details()}") from error
        except asyncio.CancelledError as error:
            # grpc raises CancelledError when a call's channel is closed, although the calling task was not cancelled.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise ConnectionLost(f"the connection to {self._target} was closed during {method}") from error
        return answer

    def _checked_target(self, user: int) -> str:
        """Return an address of the instance's socket that symbolic links in its directory cannot redirect.

        Raises:
            ConnectionLost: the path is not a socket of that user.
        """
        try:
            held = os.open(self._socket, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise ConnectionLost(f"no response from {self._target}: {error.strerror}") from error
        found = os.fstat(held)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != user:
            os.close(held)
            raise ConnectionLost(f"no response from {self._target}: not a socket of user {user}")
        self._held = held
        return f"unix:/proc/self/fd/{held}"

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close(None)
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)
