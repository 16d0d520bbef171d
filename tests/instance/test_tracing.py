"""Spans of calls: one trace through functions, in each kind, on threads and processes; and what keeps them from it."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.consumers.received import Message
from magnetar.client.producers.outgoing import encode_entry
from magnetar.instance.tracing import export
from magnetar.instance.tracing.export import SpanQueue
from magnetar.instance.tracing.opening import tell_untraced
from magnetar.instance.tracing.settings import batch_setting, wish_of
from magnetar.runtime.interface import Runtime
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records
from magnetar.wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tests.support.eventually import until
from tests.support.function_topics import receive
from tests.support.instances import MakeSpec
from tests.support.ports import Reserved
from tests.support.servers import Server
from tests.support.spans import SpanEndpoint, span_endpoint, values_of

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
STATE = "vendor=1"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture(autouse=True)
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpanEndpoint]:
    """An endpoint that the environment names before a runtime begins; spans are sent when the last instance stops."""
    with span_endpoint() as endpoint:
        monkeypatch.setenv(ENDPOINT, endpoint.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        yield endpoint


async def send(client: AsyncClient, topic: str, messages: dict[str, str]) -> None:
    """Send messages as one batch, each with the traceparent that is given for it, if any."""
    headers = []
    for parent in messages.values():
        given = {"colour": "red"} | ({"traceparent": parent, "tracestate": STATE} if parent else {})
        headers.append(SingleMessageMetadata(properties=[KeyValue(key=key, value=its) for key, its in given.items()]))
    producer = await client.create_producer(topic)
    await producer.send_entry(encode_entry([text.encode() for text in messages], headers))
    await producer.close()


def context_of(message: Message) -> tuple[str, str]:
    """Return the trace and the span that a message names."""
    _, trace, span, _ = message.properties["traceparent"].split("-")
    return trace, span


def by_id(spans: Sequence[Span]) -> dict[str, Span]:
    return {span.span_id.hex(): span for span in spans}


CHAIN = """
from opentelemetry import trace

def process(text):
    called = trace.get_current_span().get_span_context().span_id.to_bytes(8).hex()
    with trace.get_tracer("mine").start_as_current_span("own"):
        return text + " " + called
"""


async def test_functions_behind_each_other_are_one_trace(
    client: AsyncClient, make_spec: MakeSpec, any_runtime: Runtime, spans: SpanEndpoint, topic: str
) -> None:
    await send(client, f"{topic}-in", {"m": SAMPLED})
    first = make_spec(CHAIN, sink=records.SinkSpec(topic=f"{topic}-between", forwardSourceMessageProperty=True))
    source = records.SourceSpec()
    source.inputSpecs[f"{topic}-between"].SetInParent()
    second = make_spec(CHAIN, name="g", source=source)
    instances = [await any_runtime.start(spec) for spec in (first, second)]
    (output,) = await receive(client, f"{topic}-out", 1)
    for instance in instances:
        await instance.stop(10)
    is_process = isinstance(any_runtime, ProcessRuntime)
    found_spans = by_id(await spans.arrived(4 if is_process else 2))
    own = [span.parent_span_id.hex() for span in found_spans.values() if span.name == "own"]
    one, two = sorted(
        (span for span in found_spans.values() if span.name != "own"), key=lambda span: span.name, reverse=True
    )
    assert own == ([one.span_id.hex(), two.span_id.hex()] if is_process else [])
    _, named_first, named_second = output.data.decode().split()
    assert (one.span_id.hex(), two.span_id.hex()) == (named_first, named_second)
    assert [(each.trace_id.hex(), each.parent_span_id.hex()) for each in (one, two)] == [
        (TRACE, PARENT),
        (TRACE, named_first),
    ]
    assert context_of(output) == (TRACE, named_second)
    assert output.properties["tracestate"] == STATE
    assert output.properties.get("colour") is None  # the second function forwards nothing
    assert (one.kind, one.name) == (Span.SPAN_KIND_CONSUMER, f"process {topic}-in")
    found = values_of(one)
    assert found.pop("messaging.message.id").count(":") in (2, 3)
    assert found == {
        "messaging.system": "pulsar",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": f"{topic}-in",
        "magnetar.function": "public/default/f",
        "magnetar.function.instance": 0,
        "magnetar.function.version": 3,
    }
    assert spans.services == {"public/default/f", "public/default/g"}


KINDS = """
from magnetar import batch_function

def plain(text, context):
    context.publish(context.get_output_topic() + "-more", "more " + text, properties={"traceparent": "old"})
    return text + "a"

def generator(text, context):
    yield text + "a"
    context.publish(context.get_output_topic() + "-more", "more " + text)
    yield text + "b"

async def coroutine(text, context):
    context.publish(context.get_output_topic() + "-more", "more " + text)
    return text + "a"

async def stream(text, context):
    yield text + "a"
    context.publish(context.get_output_topic() + "-more", "more " + text)
    yield text + "b"

@batch_function
def batch(texts, context):
    for text in texts:
        context.publish(context.get_output_topic() + "-more", "more " + text)
    return [text + "a" for text in texts]
"""


@pytest.fixture
async def threads(server: Server) -> Any:
    runtime = ThreadRuntime(server.service_url)
    yield runtime
    await runtime.close()


@pytest.mark.parametrize("name", ["plain", "generator", "coroutine", "stream", "batch"])
@pytest.mark.parametrize("guarantee", [records.ATLEAST_ONCE, records.EFFECTIVELY_ONCE])
async def test_what_each_kind_sends_names_the_span_of_its_call(
    client: AsyncClient,
    make_spec: MakeSpec,
    threads: Runtime,
    spans: SpanEndpoint,
    topic: str,
    name: str,
    guarantee: int,
) -> None:
    code = KINDS if guarantee == records.ATLEAST_ONCE else without_publishing(KINDS)
    await send(client, f"{topic}-in", {"m0": SAMPLED, "m1": "", "m2": UNSAMPLED, "m3": SAMPLED})
    details: dict[str, object] = {"sink": records.SinkSpec(topic=f"{topic}-out", forwardSourceMessageProperty=True)}
    if guarantee == records.EFFECTIVELY_ONCE:
        details |= {"source": records.SourceSpec(subscriptionType=records.FAILOVER)}
    spec = make_spec(code, f"user_code.{name}", processingGuarantees=guarantee, **details)
    instance = await threads.start(spec)
    suffixes = "ab" if name in ("generator", "stream") else "a"
    messages = await receive(client, f"{topic}-out", 4 * len(suffixes))
    if guarantee == records.ATLEAST_ONCE:
        messages += await receive(client, f"{topic}-out-more", 4)
    await instance.stop(10)
    found = by_id(await spans.arrived(1 if name == "batch" else 3))
    for message in messages:
        keys = [pair.key for pair in message._header.properties]

        assert len(keys) == len(set(keys))
    contexts = {number: {context_of(m) for m in messages if b"m%d" % number in m.data} for number in range(4)}
    assert [len(its) for its in contexts.values()] == [1] * 4  # all that a call sends names the same span
    if name == "batch":
        ((span_id, span),) = found.items()
        assert {context_of(message) for message in messages} == {(span.trace_id.hex(), span_id)}
        assert [(link.trace_id.hex(), link.span_id.hex()) for link in span.links] == [(TRACE, PARENT)] * 3
        assert span.trace_id.hex() != TRACE
        assert values_of(span)["messaging.batch.message_count"] == 4
        return
    ((_, first),), ((_, second),), ((third_trace, third),), ((_, fourth),) = contexts.values()
    assert {first, second, fourth} == set(found)
    assert found[first].parent_span_id.hex() == found[fourth].parent_span_id.hex() == PARENT
    assert not found[second].parent_span_id  # it began a trace
    assert (third_trace, third in found) == (TRACE, False)
    unsampled = next(message for message in messages if b"m2" in message.data)
    assert unsampled.properties["traceparent"].endswith("-00")


def without_publishing(code: str) -> str:
    """Return code that needs no state store."""
    return "\n".join(
        "    pass" if "for text in texts:" in line else line for line in code.splitlines() if "publish" not in line
    )


FAILING = """
from magnetar import batch_function

def plain(text):
    raise ValueError("no " + text)

def generator(text):
    yield text
    raise ValueError("no " + text)

async def coroutine(text):
    raise ValueError("no " + text)

@batch_function
def batch(texts):
    return [ValueError("no " + text) for text in texts]
"""


@pytest.mark.parametrize("name", ["plain", "generator", "coroutine", "batch"])
async def test_a_failure_is_told_by_the_span(
    client: AsyncClient, make_spec: MakeSpec, threads: Runtime, spans: SpanEndpoint, topic: str, name: str
) -> None:
    await send(client, f"{topic}-in", {"m": SAMPLED})
    retries = records.RetryDetails(maxMessageRetries=0)
    instance = await threads.start(make_spec(FAILING, f"user_code.{name}", retryDetails=retries))

    async def has_failed() -> bool:
        return (await instance.status()).numUserExceptions == 1

    await until(has_failed)
    await instance.stop(10)
    (span,) = await spans.arrived(1)
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "no m")
    assert span.parent_span_id.hex() == PARENT
    (event,) = span.events
    told = {one.key: one.value.string_value for one in event.attributes}
    assert (event.name, told["exception.type"], told["exception.message"]) == (
        "exception",
        "builtins.ValueError",
        "no m",
    )
    assert "ValueError: no m" in told["exception.stacktrace"]
    assert values_of(span)["error.type"] == "ValueError"


@pytest.mark.parametrize("what", ["missing", "wrong", "silent"])
async def test_a_function_runs_where_spans_go_nowhere(
    client: AsyncClient,
    make_spec: MakeSpec,
    threads: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    what: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if what == "missing":
        monkeypatch.delitem(sys.modules, "magnetar.instance.tracing.calls", raising=False)
        monkeypatch.delitem(sys.modules, "magnetar.instance.tracing.spans", raising=False)
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    elif what == "wrong":
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    else:
        monkeypatch.setattr(export, "CLOSE_S", 0.2)
        port = Reserved(1)
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{port.numbers[0]}")
    await send(client, f"{topic}-in", {"m": SAMPLED})
    spec = make_spec("def process(text):\n    return text + '!'\n")
    instance = await threads.start(spec)
    (output,) = await receive(client, f"{topic}-out", 1)
    began_s = time.monotonic()
    await instance.stop(10)
    assert time.monotonic() - began_s < 8
    assert output.data == b"m!"
    log = spec.log_file.read_text()
    if what == "missing":
        assert f"{ENDPOINT} is set, but calls are not traced" in log
        assert "install magnetar[otel]" in log
    elif what == "wrong":
        assert "invalid OTEL_BSP_MAX_QUEUE_SIZE 'many': expected a positive number" in log
    else:
        assert "lost 1 spans: " in caplog.text


def test_the_environment_says_whether_calls_are_traced() -> None:
    here = {ENDPOINT: "http://collector:4318"}
    assert wish_of({}) == wish_of({ENDPOINT: ""}) == ("", "")
    assert wish_of(here) == (ENDPOINT, "")
    assert wish_of({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}).variable
    assert wish_of(here | {"OTEL_SDK_DISABLED": "true"}) == wish_of(here | {"OTEL_TRACES_EXPORTER": "none"}) == ("", "")
    assert wish_of(here | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}).variable
    grpc = wish_of(here | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert not grpc.variable
    assert "OTEL_EXPORTER_OTLP_PROTOCOL 'grpc'" in grpc.refusal
    assert "OTEL_TRACES_EXPORTER 'console'" in wish_of(here | {"OTEL_TRACES_EXPORTER": "console"}).refusal
    told: list[tuple[str, str]] = []
    tell_untraced(lambda *line: told.append(line))
    assert told == [("INFO", f"{ENDPOINT} is set, but only functions are traced, not sources and sinks")]
    with pytest.raises(ValueError, match="invalid OTEL_BSP_SCHEDULE_DELAY '-1': expected a positive number"):
        batch_setting({"OTEL_BSP_SCHEDULE_DELAY": "-1"}, "OTEL_BSP_SCHEDULE_DELAY", 5000)


class HeldExporter(SpanExporter):
    """Takes nothing before it is let."""

    def __init__(self, fails: bool = False) -> None:
        self.let, self.asked, self.taken, self.fails = threading.Event(), threading.Event(), 0, fails

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        if not self.let.wait(30):
            raise TimeoutError
        if self.fails:
            raise ConnectionError("nobody is there")
        self.taken += len(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.let.set()


def made_by(queue: SpanQueue, count: int) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(queue)
    for _ in range(count):
        provider.get_tracer("t").start_span("s").end()


def test_spans_for_which_there_is_no_room_are_counted_and_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    exporter = HeldExporter()
    queue = SpanQueue(exporter, spans_max=10, batch_max=5)
    made_by(queue, 5)
    assert exporter.asked.wait(30)
    made_by(queue, 13)
    assert queue.lost == 3
    assert not queue.force_flush(10)
    exporter.let.set()
    assert queue.force_flush()
    queue.shutdown()
    assert exporter.taken == 15
    assert [record.getMessage() for record in caplog.records] == [
        "lost 3 spans: more than 10 spans were queued (OTEL_BSP_MAX_QUEUE_SIZE)"
    ]


def test_spans_that_nobody_takes_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    exporter, now_s = HeldExporter(fails=True), 0.0
    exporter.let.set()
    queue = SpanQueue(exporter, batch_max=1, clock=lambda: now_s)
    for _ in range(3):
        made_by(queue, 1)
        assert queue.force_flush()
    now_s = 61.0
    made_by(queue, 1)
    queue.shutdown()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [int(line.split()[1]) for line in told] in ([1, 3], [1, 2, 1])
    assert all(line.endswith("spans: ConnectionError: nobody is there") for line in told)
