"""The REST interface as commands use it: one call, its JSON or its text, and errors as one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from ..wire.printable import one_line
from .failure import Failure

REQUEST_TIMEOUT_S = 300.0
"""How long an answer may take; Pulsar's own tool waits as long."""
CONNECT_TIMEOUT_S = 5.0

Parts = Mapping[str, tuple[str | None, str | bytes, str]]
"""The parts of a multipart request: name -> (file name or None, content, content type)."""


class Admin:
    """A connection to the REST interface; use it in a ``with`` statement."""

    def __init__(self, base_url: str, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self.base_url = base_url
        self._client = httpx.Client(
            base_url=base_url,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            follow_redirects=True,
            trust_env=False,  # a proxy for the internet is not the way to a broker
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON (or text) of a GET; None for an empty answer."""
        return self.call("GET", path, params=params)

    def put(self, path: str, body: Any = None, **params: Any) -> Any:
        """PUT a JSON body; without one nothing is sent."""
        return self.call("PUT", path, body=body, params=params)

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        """POST a JSON body; without one nothing is sent."""
        return self.call("POST", path, body=body, params=params)

    def delete(self, path: str, **params: Any) -> Any:
        """DELETE a resource."""
        return self.call("DELETE", path, params=params)

    def send_parts(self, method: str, path: str, parts: Parts) -> Any:
        """Send a multipart form, as creating a function needs it."""
        return _content(self._send(method, path, files=dict(parts)))

    def send_parts_raw(self, method: str, path: str, parts: Parts) -> bytes:
        """Send a multipart form and return the answer's bytes as they came."""
        return self._send(method, path, files=dict(parts)).content

    def call(self, method: str, path: str, *, body: Any = None, params: Mapping[str, Any] | None = None) -> Any:
        """Send a request with an optional JSON body and return what came back.

        Raises:
            Failure: nobody answers at that address, or the answer is an error.
        """
        arguments: dict[str, Any] = {"params": _query(params)}
        if body is not None:
            arguments["json"] = body
        return _content(self._send(method, path, **arguments))

    def raw(self, method: str, path: str) -> httpx.Response:
        """Return the whole answer, headers included, of a request without a body."""
        return self._send(method, path)

    @contextmanager
    def stream(self, path: str, params: Mapping[str, Any]) -> Iterator[httpx.Response]:
        """Open an answer that is read piece by piece; it may last as long as it likes."""
        endless = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        with self._reaching(), self._client.stream("GET", path, params=_query(params), timeout=endless) as response:
            if response.is_error:
                response.read()
                raise refusal(response)
            yield response

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        with self._reaching():
            response = self._client.request(method, path, **arguments)
        if response.is_error:
            raise refusal(response)
        return response

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Translate what the network does to us."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
            raise Failure(
                f"cannot reach {self.base_url}: start one with `magnetar standalone` or give --admin-url"
            ) from exc
        except httpx.TimeoutException as exc:
            raise Failure(f"{self.base_url} gave no answer in {REQUEST_TIMEOUT_S:g} s; look into its log") from exc
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise Failure(f"talking to {self.base_url} failed: {exc or type(exc).__name__}; look into its log") from exc


def refusal(response: httpx.Response) -> Failure:
    """Return the failure for an answer with an error status: the server's reason and the status."""
    reason = ""
    try:
        content = json.loads(response.content)
    except ValueError:
        if "html" not in response.headers.get("content-type", ""):
            reason = response.text
    else:
        reason = (
            str(content.get("reason") or content.get("detail") or "") if isinstance(content, dict) else str(content)
        )
    reason = one_line(reason)[:2000]
    if not reason:
        reason = f"{response.request.method} {response.request.url.path}: {response.reason_phrase}"
    return Failure(f"{reason} (HTTP {response.status_code})", response.status_code)


def segment(text: str) -> str:
    """Return a text as one escaped segment of a path."""
    return quote(text, safe="")


def _query(params: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the parameters that are set, booleans as Java writes them."""
    given = {name: value for name, value in (params or {}).items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def _content(response: httpx.Response) -> Any:
    if not response.content:
        return None
    try:
        return json.loads(response.content)
    except ValueError:
        return response.text
