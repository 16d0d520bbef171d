"""The ``http`` source receives webhooks.

The body of each POST or PUT request becomes a record. The response is 200 once the record is durable, or an immediate
202. When the queue is full, requests get 503 with Retry-After before their body is read, so a client that retries loses
no data.

A separate thread serves requests on an event loop and queues records for `read`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from ..api.connector import Record, Retry, Source, SourceContext
from ..api.connector_config import Refusal, Unsupported, option
from ..errors import InvalidConfig
from .documents import json_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

RECORDS_AT_ONCE_MAX = 1000
END_S = 10.0
"""How long the server thread may take to stop, in seconds."""
_IDLE_S = 0.5
_BUSY_S = 0.05
"""How long `read` waits while clients wait for responses, which are sent between two reads, in seconds."""


@dataclass
class HttpSourceConfig:
    """Settings of the ``http`` source."""

    unsupported: ClassVar[Unsupported] = {
        "type": Refusal("only HTTP is supported, not TCP or UDP; remove this option", ("http",)),
        "numberOfThreads": Refusal(
            "one thread receives all requests; increase parallelism, which adds a port per instance", (1,)
        ),
    }

    host: str = option("Address to listen on; 0.0.0.0 for all addresses.", default="127.0.0.1")
    port: int = option(
        "Port to listen on. Each additional instance uses the next port.", default=10999,
        limits=(1, 65535),
    )  # fmt: skip
    path: str = option("The only accepted path; empty to accept any path.", default="")
    token: str = option(
        "Token that clients must send as Authorization: Bearer; empty for no authentication.", default="", secret=True
    )
    format: Literal["json", "raw"] = option(
        "json: reject bodies that are not valid JSON with 400; raw: accept all bodies. Bodies are not changed.",
        default="json",
    )
    answer: Literal["durable", "accepted"] = option(
        "durable: respond with 200 once the record is stored; accepted: respond with 202 immediately. A crash loses "
        "accepted records that are not stored yet.",
        default="durable",
    )
    headers: list[str] = option("Headers to add to records as properties named header.NAME, in lower case.", default=[])
    key_header: str = option("Header whose value becomes the record key; empty for no key.", default="")
    allowed_hosts: list[str] = option(
        "Host names that clients may use for this machine. With a token, any name is accepted.", default=[]
    )
    max_body_bytes: int = option("Maximum bytes per request body.", default=1 << 20, limits=(1, 5_000_000))
    max_waiting: int = option(
        "Maximum number of accepted records that are not durable yet.", default=10_000, limits=(1, None)
    )
    max_waiting_bytes: int = option(
        "Maximum bytes of accepted records that are not durable yet.", default=64 << 20, limits=(1, None)
    )
    retry_after: int = option(
        "Value of the Retry-After header in 503 responses, in seconds.", default=1, limits=(0, 3600)
    )
    timeout: float = option(
        "Seconds after which a request is answered with 503 if its record is not durable yet. The record may still be "
        "stored.",
        default=30.0, limits=(0.1, 3600),
    )  # fmt: skip


class HttpSource(Source):
    """Receives webhooks. Each request body is a record, confirmed once it is durable."""

    config = HttpSourceConfig

    def __init__(self) -> None:
        self._receiver: _Receiver | None = None

    def check(self, config: HttpSourceConfig) -> None:
        """Validate the configuration."""
        if config.path and not config.path.startswith("/"):
            raise InvalidConfig(f"invalid path {config.path[:60]!r}: must start with /")
        if config.max_waiting_bytes < config.max_body_bytes:
            raise InvalidConfig(
                "maxWaitingBytes must be at least maxBodyBytes: otherwise large bodies would never be accepted"
            )
        if not config.token.isascii():
            raise InvalidConfig("token must contain only ASCII characters")

    def not_effectively_once(self, config: HttpSourceConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "a client that receives no response repeats its request, which creates a second record"

    def open(self, config: HttpSourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        port = config.port + context.instance_id
        if port > 65535:
            raise InvalidConfig(f"port {config.port} is too high for instance {context.instance_id}: set a lower port")
        receiver = self._receiver = _Receiver(replace(config, port=port))
        receiver.start()
        context.logger.info("listening on %s:%d", config.host, port)

    def read(self) -> list[Record]:
        """Return the next records, or None if none are available yet."""
        assert self._receiver is not None
        return self._receiver.take()

    def close(self) -> None:
        """Close the connector."""
        if self._receiver is not None:
            self._receiver.stop()
            self._receiver = None


class _Receiver:
    """A thread that serves requests and queues their records."""

    def __init__(self, config: HttpSourceConfig) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"http source {config.port}", daemon=True)
        self._changed = threading.Condition()
        self._queue: deque[Record] = deque()
        self._is_serving = threading.Event()
        self._error: Exception | None = None
        self._end: asyncio.Event
        # Used only on the event loop:
        self._waiting = 0
        self._waiting_bytes = 0
        self._answers: set[asyncio.Future[bool | str]] = set()

    # -- on the connector's thread --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start listening, or raise `Retry`."""
        self._thread.start()
        self._is_serving.wait()
        if self._error is not None:
            self._thread.join(END_S)
            raise Retry(str(self._error)) from self._error

    def take(self) -> list[Record]:
        """Return the received records; waits briefly if the queue is empty."""
        if self._error is not None:
            raise Retry(f"{type(self._error).__name__}: {self._error}") from self._error
        with self._changed:
            if not self._queue:
                self._changed.wait(_BUSY_S if self._waiting else _IDLE_S)
            return [self._queue.popleft() for _ in range(min(len(self._queue), RECORDS_AT_ONCE_MAX))]

    def stop(self) -> None:
        """Send responses to waiting clients and stop the thread."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(END_S)

    # -- on the server thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception as error:  # noqa: BLE001  reraised by the next read
            self._error = error
        finally:
            self._is_serving.set()

    async def _serve(self) -> None:
        from ..web.same_site import (
            AllowedNames,
            allowed_names,
        )  # imported here because other connectors do not need a web server
        from ..web.serve import serve

        class AnyName(AllowedNames):
            def has(self, name: str) -> bool:
                return True

        config = self._config
        self._end = asyncio.Event()
        names = replace(allowed_names(config.host, config.allowed_hosts), setting="allowedHosts of the source")
        if config.token:
            names = AnyName(names.own, names.configured, names.is_loopback, names.setting)
        server, _ = await serve(self._application, config.host, config.port, names)
        self._is_serving.set()
        await self._end.wait()
        for answer in list(self._answers):
            _settle(answer, False)
        await server.stop()

    async def _application(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        answer = await self._answer(Request(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        config = self._config
        if (refusal := self._refusal(request)) is not None:
            return refusal
        body = await self._body(request)
        if body is None:
            return self._too_large()
        if config.format == "json" and (fault := _fault_of(body)):
            return _response(400, f"body is not valid JSON: {fault}")
        if self._is_full(len(body)):
            return self._busy("too many pending records")
        record = self._record(request, body)
        answer = self._enqueue(record, len(body))
        if config.answer == "accepted":
            return _response(202, "accepted")
        try:
            outcome = await asyncio.wait_for(asyncio.shield(answer), config.timeout)
        except TimeoutError:
            return self._busy(f"record was not stored within {config.timeout:g} s, but may still be stored")
        if isinstance(outcome, str):
            return _response(422, f"record was rejected: {outcome}")
        return _response(200, "stored") if outcome else self._busy("record may not have been stored")

    def _refusal(self, request: Request) -> Response | None:
        """Return a response that rejects a request before its body is read, or None to accept the request."""
        config = self._config
        if config.path and request.url.path != config.path:
            return _response(404, f"not found: send requests to {config.path}")
        if request.method not in ("POST", "PUT"):
            return _response(405, "method not allowed: use POST or PUT", {"Allow": "POST, PUT"})
        if config.token:
            given = request.headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {config.token}".encode()):
                return _response(401, "token is missing or invalid", {"WWW-Authenticate": "Bearer"})
        length = request.headers.get("content-length", "0")  # the server has verified that it is a number
        if int(length) > config.max_body_bytes:
            return _response(413, f"body of {length} bytes exceeds maxBodyBytes ({config.max_body_bytes})")
        return self._busy("too many pending records") if self._is_full(int(length)) else None

    async def _body(self, request: Request) -> bytes | None:
        """Return a request body, or None if it is too large. Bytes received so far count towards the queue limit."""
        parts, size = [], 0
        try:
            async for part in request.stream():
                size += len(part)
                self._waiting_bytes += len(part)
                if size > self._config.max_body_bytes:
                    return None
                parts.append(part)
            return b"".join(parts)
        finally:
            self._waiting_bytes -= size

    def _too_large(self, of: str = "") -> Response:
        return _response(413, f"body {of}exceeds maxBodyBytes ({self._config.max_body_bytes})")

    def _record(self, request: Request, body: bytes) -> Record:
        config, headers = self._config, request.headers
        properties = {"path": request.url.path}
        properties |= {f"query.{name}": value for name, value in request.query_params.items()}
        properties |= {f"header.{name.lower()}": headers[name] for name in config.headers if name in headers}
        key = headers.get(config.key_header) if config.key_header else None
        return Record(body, key, properties, int(time.time() * 1000))

    def _is_full(self, size: int) -> bool:
        config = self._config
        return self._waiting >= config.max_waiting or self._waiting_bytes + size > config.max_waiting_bytes

    def _busy(self, text: str) -> Response:
        return _response(503, text, {"Retry-After": str(self._config.retry_after)})

    def _enqueue(self, record: Record, size: int) -> asyncio.Future[bool | str]:
        """Queue a record for `take`. The future resolves to whether the record is durable, or why it was rejected."""
        loop = self._loop
        answer: asyncio.Future[bool | str] = loop.create_future()
        self._answers.add(answer)
        self._waiting += 1
        self._waiting_bytes += size

        def settled(outcome: bool | str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no client is waiting
                loop.call_soon_threadsafe(_settle, answer, outcome)

        def leave(_: object) -> None:
            self._answers.discard(answer)
            self._waiting -= 1
            self._waiting_bytes -= size

        answer.add_done_callback(leave)
        record.acknowledge = lambda: settled(True)
        record.fail = lambda: settled(False)
        if (
            self._config.answer == "durable"
        ):  # otherwise the client already has a response, and the record goes to the dead-letter topic
            record.refuse = settled
        with self._changed:
            self._queue.append(record)
            self._changed.notify()
        return answer


def _settle(answer: asyncio.Future[bool | str], outcome: bool | str) -> None:
    if not answer.done():
        answer.set_result(outcome)


def _fault_of(body: bytes) -> str:
    try:
        json_of(body)
    except (ValueError, RecursionError) as error:
        return str(error) or type(error).__name__
    return ""


def _response(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    from starlette.responses import Response

    from ..web.answers import encode

    name = "status" if status < 300 else "reason"
    return Response(encode({name: text}), status, headers=headers, media_type="application/json")
