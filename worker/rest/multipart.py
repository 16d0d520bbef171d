"""Streams multipart requests: small parts are read into memory, and the package is written directly to disk.

Starlette's own parser drops the content type of parts without a file name, on which Pulsar's interface depends, and
spools a package to a temporary file that would have to be copied. Parts may be in any order; header lines may have
trailing spaces, as sent by pulsarctl.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header
from starlette.requests import Request

from ...errors import RequestRefused
from ...metadata.packages import PackageStore, Upload
from ...wire.strict_json import NotJson, read_json
from .form_limits import FormAccount

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PART_BYTES = 5 * 1024 * 1024
"""Maximum bytes of a part kept in memory: the largest message as trigger data; configs are much smaller."""
MAX_JSON_BYTES = 1024 * 1024
"""Maximum bytes of a part that is a config."""
MAX_PARTS = 32


@dataclass(slots=True)
class Part:
    """A part of a form."""

    name: str = ""
    file_name: str | None = None
    content_type: str = ""
    content: bytes = b""
    upload: Upload | None = None

    @property
    def is_json(self) -> bool:
        """Whether the part's content type is JSON."""
        return self.content_type.split(";")[0].strip().lower() == "application/json"


Form = dict[str, Part]
_Event = Part | bytes | None
"""The start of a part, a piece of its content, or None for its end."""


async def read_form(
    request: Request, account: FormAccount, stream_part: str | None = None, uploads: PackageStore | None = None
) -> Form:
    """Return the parts of a request by name.

    Args:
        request: the request; its body is consumed.
        account: account that is charged for the parts' resources.
        stream_part: name of the part that is streamed to `uploads` instead of kept in memory.
        uploads: receives the streamed part, which is discarded after an error.

    Raises:
        RequestRefused: 415, not a multipart request; 400, invalid or too large; 429 or 503, too many requests.
    """
    events = _events(request, _boundary(request))
    form: Form = {}
    try:
        async for event in events:
            if not isinstance(event, Part):
                continue
            if len(form) >= MAX_PARTS or event.name in form:
                raise RequestRefused(
                    400, f"the request contains the part {event.name[:40]} twice, or more than {MAX_PARTS} parts"
                )
            form[event.name] = event
            if event.name == stream_part and uploads is not None:
                account.begin_upload()
                event.upload = await uploads.receive(_until_end(events))
            else:
                event.content = await _collect(event, events, account)
    except BaseException as exc:
        for part in form.values():
            if part.upload is not None and uploads is not None:
                await uploads.discard(part.upload)
        if isinstance(exc, FormParserError):
            raise RequestRefused(400, f"the multipart request is malformed: {exc}") from exc
        raise
    finally:
        await events.aclose()
    return form


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data":
        shown = kind.decode("latin-1") or "no content type"
        raise RequestRefused(415 if kind else 400, f"expected a multipart/form-data request, got {shown}")
    boundary = options.get(b"boundary")
    if not boundary:
        raise RequestRefused(400, "the multipart request has no boundary")
    return boundary


async def _until_end(events: AsyncIterator[_Event]) -> AsyncIterator[bytes]:
    async for event in events:
        if not isinstance(event, bytes):
            return
        yield event


async def _collect(part: Part, events: AsyncIterator[_Event], account: FormAccount) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in _until_end(events):
        size += len(piece)
        if size > MAX_PART_BYTES:
            raise RequestRefused(400, f"the part {part.name[:40]} is larger than {MAX_PART_BYTES} bytes")
        account.keep(len(piece))
        pieces.append(piece)
    return b"".join(pieces)


async def _events(request: Request, boundary: bytes) -> AsyncGenerator[_Event, None]:
    collector = _Collector()
    parser = MultipartParser(boundary, collector.callbacks())
    async for chunk in request.stream():
        parser.write(chunk)
        found, collector.events = collector.events, []
        for event in found:
            yield event
    parser.finalize()
    if parser.state != MultipartState.END:
        raise RequestRefused(400, "the multipart request ends before its last boundary")


class _Collector:
    """Translates the parser's callbacks into events."""

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self._part = Part()
        self._field = b""
        self._value = b""

    def callbacks(self) -> MultipartCallbacks:
        """Return the callbacks for the parser."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._take_field,
            "on_header_value": self._take_value,
            "on_header_end": self._end_header,
            "on_headers_finished": lambda: self.events.append(self._part),
            "on_part_data": lambda data, start, end: self.events.append(data[start:end]),
            "on_part_end": lambda: self.events.append(None),
        }

    def _begin(self) -> None:
        self._part = Part()

    def _take_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _take_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        name, value = self._field.strip().lower(), self._value.strip()
        self._field = self._value = b""
        if name == b"content-disposition":
            _, options = parse_options_header(value)
            self._part.name = _decoded(options.get(b"name", b""))
            file_name = options.get(b"filename")
            self._part.file_name = None if file_name is None else _decoded(file_name)
        elif name == b"content-type":
            self._part.content_type = _decoded(value)


def _decoded(text: bytes) -> str:
    return text.strip().decode("utf-8", "replace")


def json_part(form: Form, name: str, title: str = "", max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any] | None:
    """Return the JSON object of a part, whose content type must be JSON as in Pulsar, or None if it is missing.

    Args:
        form: the parts.
        name: name of the part.
        title: kind of component that the part configures; empty if it is not a config.
        max_bytes: maximum size of its content.
    """
    part = form.get(name)
    if part is None:
        return None
    if not part.is_json:
        shown = ascii(part.content_type[:80]) if part.content_type else "no content type"
        missing = f"{title} config is not provided: " if title else ""
        raise RequestRefused(400, f"{missing}the part {name} has {shown}: send it as application/json")
    if len(part.content) > max_bytes:
        raise RequestRefused(400, f"the part {name} of {len(part.content)} bytes is larger than {max_bytes}")
    try:
        value = read_json(part.content)
    except NotJson as exc:
        raise RequestRefused(400, f"the part {name} is not JSON: {exc}") from exc
    if value is not None and not isinstance(value, dict):
        raise RequestRefused(400, f"the part {name} must be a JSON object, got {type(value).__name__}")
    return value
