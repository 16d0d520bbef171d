"""REST client: responses, errors, forms and redirects for all callers, and a blocking client based on `http.client`.

The client needs only the standard library, because instances and Spark tasks make a few requests each and should not
load an HTTP library for them. Processes that load httpx anyway and send requests from an event loop use `async_client`.

An error status does not raise: callers check `Answer.is_success` and report `Answer.reason`. If no response is
received, a subclass of ConnectionLost is raised.

Redirected requests keep their credentials: brokers and workers of a cluster redirect to each other and accept the same
credentials, and the redirecting server has already seen them. A redirect from https to http is never followed.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
    RemoteDisconnected,
)
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urljoin, urlsplit

from ..errors import ConnectionLost
from ..security.tls_failure import tls_failure
from ..wire.printable import one_line

if TYPE_CHECKING:
    from ..security.client_credentials import ClientCredentials

MAX_REDIRECTS = 10
MAX_REASON_CHARACTERS = 2000
CHUNK_BYTES = 64 * 1024
JSON_TYPE = "application/json"
_REDIRECTS = (301, 302, 307, 308)
TLS_ENDED = "the server closed the TLS connection without a response; it may require a client certificate"
_SHOWN_CHARACTERS = 16
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~"

Parts = Mapping[str, tuple[str | None, str | bytes, str]]
"""The parts of a multipart form: name -> (file name or None, content, content type)."""


class Form(NamedTuple):
    """A multipart form as request body."""

    parts: Parts


class NoAnswer(ConnectionLost):
    """No response was received.

    Attributes:
        reason: the reason without the method and URL, which the message includes.
    """

    def __init__(self, method: str, url: str, reason: str) -> None:
        super().__init__(f"{method} {url}: {reason}")
        self.reason = reason


class Unreachable(NoAnswer):
    """Connecting to the server failed."""


class NoTls(Unreachable):
    """One side rejected the other's certificate, or the server does not speak TLS."""


class NotHttp(NoAnswer):
    """The server closed the connection without a response, or responded in another protocol."""


class AnswerTimeout(NoAnswer):
    """The server did not respond in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's response.

    Attributes:
        method: the request's method.
        path: the request's path.
        status: HTTP status.
        phrase: reason phrase of the status line.
        headers: headers by lower-case name.
        content: response body.
    """

    method: str
    path: str
    status: int
    phrase: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status indicates success."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body decoded as text."""
        return self.content.decode("utf-8", "replace")

    @property
    def reason(self) -> str:
        """The error in one line: its `reason`, or else the body; for an HTML page, the method, path and phrase."""
        try:
            content = json.loads(self.content)
        except (ValueError, RecursionError):
            content = None if "html" in self.headers.get("content-type", "") else self.text
        if isinstance(content, dict):
            content = content.get("reason") or content.get("detail")
        if isinstance(content, dict | list):
            content = self.text
        return one_line(str(content or ""))[:MAX_REASON_CHARACTERS] or f"{self.method} {self.path}: {self.phrase}"

    def json(self) -> Any:
        """Return the JSON value of the body, or None for an empty body.

        Raises:
            NoAnswer: the body is not JSON.
        """
        try:
            return json.loads(self.content) if self.content else None
        except ValueError as error:
            raise NoAnswer(self.method, self.path, f"the response is not valid JSON: {error}") from error
        except RecursionError as error:
            raise NoAnswer(self.method, self.path, "the JSON response is nested too deeply") from error


def segment(text: str) -> str:
    """Return a string as one percent-encoded path segment."""
    return quote(text, safe="")


def with_query(url: str, params: Mapping[str, Any] | None) -> str:
    """Return a URL with the parameters that are not None. Booleans are written as in Java."""
    given = {name: value for name, value in (params or {}).items() if value is not None}
    words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    if not words:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(words, quote_via=quote)}"


def encode_body(body: Any) -> tuple[bytes | None, dict[str, str]]:
    """Encode a `Form`, or any other value as JSON. Return the body and its headers; for None, None and no headers."""
    if body is None:
        return None, {}
    if isinstance(body, Form):
        boundary = os.urandom(16).hex()
        return _encode_form(body.parts, boundary), {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return json.dumps(body).encode(), {"Content-Type": JSON_TYPE}


def _encode_form(parts: Parts, boundary: str) -> bytes:
    form = bytearray()
    for name, (file_name, content, kind) in parts.items():
        form += f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"'.encode()
        if file_name is not None:
            form += f'; filename="{_quoted(file_name)}"'.encode()
        form += f"\r\nContent-Type: {kind}\r\n\r\n".encode()
        form += content.encode() if isinstance(content, str) else content
        form += b"\r\n"
    form += f"--{boundary}--\r\n".encode()
    return bytes(form)


def _quoted(name: str) -> str:
    """Return a name quoted as in HTML forms."""
    return name.replace("\\", "\\\\").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def redirected(method: str, url: str, status: int, location: str | None) -> str | None:
    """Return the URL to which a response redirects the same request and body, or None if it is not a redirect.

    Brokers and workers of a cluster respond with 307 to any request that another of them must handle.

    Raises:
        NoAnswer: the redirect is from https to http, where the request could be eavesdropped.
    """
    if status not in _REDIRECTS or not location:
        return None
    target = urljoin(url, location)
    if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
        raise NoAnswer(method, url, f"rejected a redirect to {one_line(target)[:200]}, which has no TLS")
    return target


def request(
    method: str,
    url: str,
    *,
    body: Any = None,
    timeout_s: float,
    connect_timeout_s: float | None = None,
    credentials: ClientCredentials | None = None,
) -> Answer:
    """Send a request and return the response. Blocking.

    Args:
        method: HTTP method.
        url: URL of the resource, see `with_query`.
        body: a `Form`, or a value sent as JSON; None sends no body.
        timeout_s: maximum time to wait for data from the server.
        connect_timeout_s: timeout for connecting; `timeout_s` by default.
        credentials: credentials and TLS settings; None sends none and trusts the system's authorities.

    Raises:
        NoAnswer: no response was received; a subclass if the cause is known.
        CredentialsUnavailable, ConnectionLost, AuthenticationError: no credentials are available.
    """
    content, headers = encode_body(body)
    timeouts_s = (connect_timeout_s or timeout_s, timeout_s)
    connection, response = _send(method, url, content, headers, timeouts_s, credentials)
    with closing(connection), response:
        return _read(method, url, response)


@contextmanager
def stream(
    url: str, *, connect_timeout_s: float, credentials: ClientCredentials | None = None
) -> Iterator[tuple[Answer, Iterator[bytes]]]:
    """Send a GET without a total timeout. Return the response, and an iterator over pieces of its body. Blocking.

    For an error status, the body is in the response instead.

    Raises:
        NoAnswer: as for `request`, and also while the body is read.
    """
    connection, response = _send("GET", url, None, {}, (connect_timeout_s, None), credentials)
    with closing(connection), response:
        if 200 <= response.status < 300:
            yield _answer("GET", url, response, b""), _pieces(url, response)
        else:
            yield _read("GET", url, response), iter(())


def _pieces(url: str, response: HTTPResponse) -> Iterator[bytes]:
    with _translated("GET", url):
        while piece := response.read1(CHUNK_BYTES):
            yield piece
        if response.length:  # `read1` does not report a lost connection
            raise IncompleteRead(b"", response.length)


def _read(method: str, url: str, response: HTTPResponse) -> Answer:
    with _translated(method, url):
        return _answer(method, url, response, response.read())


def _answer(method: str, url: str, response: HTTPResponse, content: bytes) -> Answer:
    headers = {name.lower(): _decoded(value) for name, value in response.getheaders()}
    return Answer(method, urlsplit(url).path, response.status, response.reason, headers, content)


def _decoded(header: str) -> str:
    try:
        return header.encode("latin-1").decode()  # http.client decodes headers as latin-1; brokers send UTF-8
    except UnicodeError:
        return header


def _send(
    method: str,
    url: str,
    content: bytes | None,
    headers: Mapping[str, str],
    timeouts_s: tuple[float, float | None],
    credentials: ClientCredentials | None,
) -> tuple[HTTPConnection, HTTPResponse]:
    """Send a request, following redirects. The caller must read and close the response, and close the connection."""
    target = url
    sent = {**headers, **(credentials.headers() if credentials is not None else {})}
    for _ in range(MAX_REDIRECTS):
        with ExitStack() as stack, _translated(method, target):
            connection = stack.enter_context(closing(_connect(method, target, timeouts_s, credentials)))
            parsed = urlsplit(target)
            where = quote(parsed.path or "/", safe=_SAFE_IN_PATH) + (f"?{parsed.query}" if parsed.query else "")
            # The server may respond before it has read the whole body.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, where, content, sent)
            response = stack.enter_context(connection.getresponse())
            following = redirected(method, target, response.status, response.getheader("Location"))
            if following is None:
                stack.pop_all()
                return connection, response
            target = following
    raise NoAnswer(method, url, f"too many redirects: {MAX_REDIRECTS}")


def _connect(
    method: str, url: str, timeouts_s: tuple[float, float | None], credentials: ClientCredentials | None
) -> HTTPConnection:
    parsed = urlsplit(url)
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise NoAnswer(method, url, f"unknown url type: {url[:80]!r}")
    connect_timeout_s, timeout_s = timeouts_s
    connection: HTTPConnection
    if parsed.scheme == "https":
        context = None if credentials is None else credentials.context()
        connection = HTTPSConnection(parsed.hostname, parsed.port, timeout=connect_timeout_s, context=context)
    else:
        connection = HTTPConnection(parsed.hostname, parsed.port, timeout=connect_timeout_s)
    try:
        connection.connect()
    except OSError as error:
        if failure := tls_failure(parsed.netloc, error):
            raise NoTls(method, url, str(failure)) from error
        raise Unreachable(method, url, str(error) or type(error).__name__) from error
    connection.sock.settimeout(timeout_s)
    return connection


@contextmanager
def _translated(method: str, url: str) -> Iterator[None]:
    """Context that translates network errors to NoAnswer."""
    try:
        yield
    except TimeoutError as error:
        raise AnswerTimeout(method, url, "timed out waiting for a response") from error
    except (OSError, ValueError, HTTPException) as error:
        # With TLS 1.3 the server checks the client certificate after the handshake.
        if failure := tls_failure(urlsplit(url).netloc, error):
            raise NoTls(method, url, str(failure)) from error
        if isinstance(error, BadStatusLine):  # includes RemoteDisconnected
            raise NotHttp(method, url, _without_status(error)) from error
        reason = TLS_ENDED if isinstance(error, ssl.SSLEOFError) else str(error) or type(error).__name__
        raise NoAnswer(method, url, reason) from error


def _without_status(error: BadStatusLine) -> str:
    if isinstance(error, RemoteDisconnected):
        return "the server closed the connection without a response"
    return f"the response starts with {str(error)[:_SHOWN_CHARACTERS]!r}"
