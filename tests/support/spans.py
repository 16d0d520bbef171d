"""An endpoint that accepts spans by OTLP over HTTP, and stores them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.eventually import eventually


class SpanEndpoint:
    """The received spans.

    Attributes:
        url: URL of the endpoint.
        spans: all spans, in order of arrival.
        services: names of the services that sent spans.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Span] = []
        self.services: set[str] = set()

    def take(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {one.value.string_value for one in group.resource.attributes if one.key == "service.name"}
            self.spans += [span for scope in group.scope_spans for span in scope.spans]

    async def arrived(self, count: int) -> list[Span]:
        """Wait for a number of spans, and return them; fail if there are more."""

        async def are_there() -> bool:
            return len(self.spans) >= count

        await eventually(are_there, f"{count} spans")
        assert len(self.spans) == count, [span.name for span in self.spans]
        return self.spans


@contextmanager
def span_endpoint() -> Iterator[SpanEndpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            endpoint.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint = SpanEndpoint(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def values_of(span: Span) -> dict[str, Any]:
    """Return the attributes of a span."""
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}
