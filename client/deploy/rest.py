"""The REST interface as the client uses it: one call, its answer, and errors as the client's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from ...errors import ConnectionLost, InvalidConfig, OperationTimeout, RequestRefused
from ..connections.service_url import parse_service_url

ANSWER_TIMEOUT_S = 300.0
"""How long an answer may take; a worker needs the longer the larger the package."""
_BROKER_PORT = 6650
_WEB_PORT = 8080
_REASON_CHARACTERS_MAX = 2000

Parts = Mapping[str, tuple[str | None, str | bytes, str]]
"""The parts of a form: name -> (file name or None, content, content type)."""


def derive_admin_url(service_url: str) -> str:
    """Return where the REST interface is beside a broker on the usual port.

    Raises:
        InvalidConfig: the port is another, from which nothing follows.
    """
    host, port = parse_service_url(service_url)[0]
    if port != _BROKER_PORT:
        raise InvalidConfig(
            f"the address of the REST interface does not follow from {service_url}, only from port {_BROKER_PORT};"
            f" give it: Client(service_url, admin_url='http://{host}:{_WEB_PORT}')"
        )
    return f"http://{f'[{host}]' if ':' in host else host}:{_WEB_PORT}"


class Admin:
    """A connection to the REST interface; it belongs to its event loop."""

    def __init__(self, url: str, connection_timeout_s: float) -> None:
        """Prepare; nothing is connected yet."""
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig(f"admin_url={url!r} does not begin with http:// or https://")
        self.url = url.rstrip("/")
        self._client = httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=connection_timeout_s),
            follow_redirects=True,
            trust_env=False,  # a proxy for the internet is not the way to a broker
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def json(self, method: str, path: str, **arguments: Any) -> Any:
        """Return the JSON of an answer; None for an empty one. Raises as `send`."""
        content = await self.send(method, path, **arguments)
        return json.loads(content) if content else None

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        parts: Parts | None = None,
        timeout_s: float | None = ANSWER_TIMEOUT_S,
    ) -> bytes:
        """Send a request and return the answer's bytes.

        Args:
            method: of HTTP.
            path: below the address.
            params: of the query.
            parts: a form to send.
            timeout_s: how long the answer may take; None: as long as the connection holds.

        Raises:
            RequestRefused: the answer is an error; its reason.
            ConnectionLost, OperationTimeout: there is no answer.
        """
        try:
            response = await self._client.request(
                method,
                path,
                params=params,
                files=dict(parts) if parts else None,
                timeout=httpx.Timeout(timeout_s, connect=self._client.timeout.connect),
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise ConnectionLost(
                f"cannot reach {self.url}; start one with `magnetar standalone`, or give Client its admin_url"
            ) from error
        except httpx.TimeoutException as error:
            raise OperationTimeout(f"{self.url} gave no answer in {timeout_s:g} s; look into its log") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise ConnectionLost(f"talking to {self.url} failed: {reason}; look into its log") from error
        if response.is_error:
            raise RequestRefused(response.status_code, _reason(response))
        return response.content


def _reason(response: httpx.Response) -> str:
    try:
        content = json.loads(response.content)
    except ValueError:
        content = None
    reason = content.get("reason") or content.get("detail") if isinstance(content, dict) else content
    if not reason:
        request = response.request
        reason = f"{request.method} {request.url.path}: {response.status_code} {response.reason_phrase}"
    return " ".join(str(reason).split())[:_REASON_CHARACTERS_MAX]


def segment(text: str) -> str:
    """Return a text as one escaped segment of a path."""
    return quote(text, safe="")
