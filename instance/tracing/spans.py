"""Create spans of calls, with the message's context as parent, and propagate them to outgoing messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextvars import Token

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from ...client.consumers.received import ReceivedEntry
from ...wire.batch import encode_attributes, header_text
from ...wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata
from ...wire.topic_name import parse_topic_name
from ..output_headers import message_id_of
from ..publish_request import MessageOptions
from ..spec import InstanceSpec
from ..stats import encodable, format_error
from ..unit import Unit
from . import export

_SCOPE = "magnetar"
_ERRORS_MAX = 10  # maximum errors per span


class CallSpan:
    """The span of a call.

    Attributes:
        context: context of the message, with this span as the current one.
    """

    __slots__ = ("_end_ns", "_hide", "_span", "context")

    def __init__(self, span: Span, brought: Context, hide: Callable[[str], str]) -> None:
        """Wrap a started span.

        Args:
            span: span of the call.
            brought: context of the message.
            hide: removes secrets from a string.
        """
        self.context = trace.set_span_in_context(span, brought)
        self._span = span
        self._hide = hide
        self._end_ns: int | None = None

    def enter(self) -> Token[Context]:
        """Make the span's context the current one of this thread or task."""
        return otel_context.attach(self.context)

    def leave(self, token: Token[Context]) -> None:
        """Restore the previous context, and record the end of the call."""
        otel_context.detach(token)
        self._end_ns = time.time_ns()

    def failed(self, errors: Iterable[BaseException]) -> None:
        """Record why the call failed; each error is recorded once."""
        if not self._span.is_recording():
            return
        distinct = list({id(error): error for error in errors}.values())
        for error in distinct[:_ERRORS_MAX]:
            # `record_exception` would include our own frames, and secrets.
            text = self._hide(format_error(error))
            attributes = {
                "exception.type": f"{type(error).__module__}.{type(error).__qualname__}",
                "exception.message": self._hide(_text_of(error)),
                "exception.stacktrace": text,
            }
            self._span.add_event("exception", attributes)
        if distinct:
            self._span.set_attribute("error.type", type(distinct[0]).__qualname__)
            self._span.set_status(Status(StatusCode.ERROR, self._hide(_text_of(distinct[0]))))

    def end(self) -> None:
        """End the span at the recorded end of the call."""
        self._span.end(self._end_ns)


def _text_of(error: BaseException) -> str:
    try:
        return encodable(str(error))
    except Exception:  # noqa: BLE001  raised by the exception's own code
        return type(error).__name__


class Tracing:
    """Creates the spans of one instance."""

    def __init__(self, spec: InstanceSpec, hide: Callable[[str], str], *, is_alone: bool) -> None:
        """Create a tracer for an instance.

        Args:
            spec: the instance's spec.
            hide: removes secrets from a string.
            is_alone: whether the instance has its own process, in which case spans created by the function itself are
                sent with those of its calls, unless it has already configured OpenTelemetry.

        Raises:
            Exception: a setting in the environment is invalid.
        """
        self._hide = hide
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: spec.function_name}))
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(export.acquire())
        if is_alone and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            trace.set_tracer_provider(provider)
        self._tracer = provider.get_tracer(_SCOPE)
        self._propagator = propagate.get_global_textmap()
        self._fields = frozenset(self._propagator.fields)
        self._in_bytes = tuple(field.encode() for field in self._fields)
        self._attributes: dict[str, AttributeValue] = {
            "messaging.system": "pulsar",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "magnetar.function": spec.function_name,
            "magnetar.function.instance": spec.instance_id,
            "magnetar.function.version": spec.metadata.version,
        }

    def close(self) -> None:
        """Release the span queue; may block for `export.CLOSE_S`, so do not call it on an event loop."""
        export.release()

    # -- input ----------------------------------------------------------------------------------------------------

    def begin(self, unit: Unit, position: int) -> CallSpan:
        """Start the span of a call with one message, and propagate its context to the output."""
        entry, index = unit.locate(position)
        context = self._context_of(entry, index)
        span = self._span(entry, context, {"messaging.message.id": _id_text(entry, index)})
        self._mark(unit, (position,), span)
        return span

    def begin_many(self, unit: Unit, positions: list[int]) -> CallSpan:
        """Start the span of a call with several messages, which links to their contexts.

        The span is the root of a new trace. If there is only one message, or no linked context is sampled, it belongs
        to the first message's trace instead, and is not sampled in the latter case.
        """
        places = [unit.locate(position) for position in positions]
        contexts = [self._context_of(*place) for place in places]
        brought = [trace.get_current_span(context).get_span_context() for context in contexts]
        valid = [number for number, one in enumerate(brought) if one.is_valid]
        parent = Context()
        if valid and (len(positions) == 1 or not any(brought[number].trace_flags.sampled for number in valid)):
            parent = contexts[valid[0]]
        attributes: dict[str, AttributeValue] = {"messaging.batch.message_count": len(positions)}
        span = self._span(places[0][0], parent, attributes, [Link(brought[number]) for number in valid])
        self._mark(unit, positions, span)
        return span

    def _context_of(self, entry: ReceivedEntry, index: int) -> Context:
        headers = entry.headers
        raw = entry.properties if headers is None else headers.encoded[index]
        if not any(field in raw for field in self._in_bytes):
            return Context()
        source = entry.metadata if headers is None else headers[index]
        carrier = {header_text(pair.key): header_text(pair.value) for pair in source.properties}
        return self._propagator.extract(carrier, context=Context())

    def _span(
        self, entry: ReceivedEntry, parent: Context, more: dict[str, AttributeValue], links: list[Link] | None = None
    ) -> CallSpan:
        topic = entry.topic
        name = parse_topic_name(topic)
        attributes = {**self._attributes, "messaging.destination.name": name.base.text, **more}
        if name.partition >= 0:
            attributes["messaging.destination.partition.id"] = str(name.partition)
        span = self._tracer.start_span(
            f"process {name.base.text}", context=parent, kind=SpanKind.CONSUMER, attributes=attributes, links=links
        )
        return CallSpan(span, parent, self._hide)

    # -- output ---------------------------------------------------------------------------------------------------

    def _mark(self, unit: Unit, positions: Iterable[int], span: CallSpan) -> None:
        """Add the context of a span to the attributes of outputs."""
        made = unit.made
        if made is None:
            return
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, span.context)
        pairs = [KeyValue(key=key, value=value) for key, value in carrier.items()]
        attributes = encode_attributes(SingleMessageMetadata(properties=pairs))
        for position in positions:
            made[position] = self._without(made[position]) + attributes

    def _without(self, attributes: bytes) -> bytes:
        """Return the attributes of an output without the context of an earlier span."""
        if not any(field in attributes for field in self._in_bytes):
            return attributes
        metadata = SingleMessageMetadata.FromString(attributes)
        kept = [pair for pair in metadata.properties if pair.key not in self._fields]
        del metadata.properties[:]
        metadata.properties.extend(kept)
        return encode_attributes(metadata)

    def carry(self, options: MessageOptions) -> None:
        """Add the context of the current span, if any, to the properties of a message."""
        if not trace.get_current_span().get_span_context().is_valid:
            return
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        given = options.get("properties", {})
        options["properties"] = {key: value for key, value in given.items() if key not in self._fields} | carrier


def _id_text(entry: ReceivedEntry, index: int) -> str:
    """Format a message id as in Pulsar's clients: ledger, entry, partition, and batch index."""
    at = message_id_of(entry, index)
    text = f"{at.ledger_id}:{at.entry_id}:{at.partition}"
    return f"{text}:{at.batch_index}" if at.batch_index >= 0 else text
