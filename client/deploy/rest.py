"""REST access of the client, with errors translated to the client's exceptions."""

from __future__ import annotations

import httpx

from ...errors import ConnectionLost, InvalidConfig, OperationTimeout, RequestRefused, TlsFailed
from ...security.client_credentials import ClientCredentials
from ...web.async_client import connections, request
from ...web.client import Answer, AnswerTimeout, Form, NoAnswer, NoTls, Parts, Unreachable
from ..connections.service_url import DEFAULT_PORT, DEFAULT_TLS_PORT, parse_service_url

ANSWER_TIMEOUT_S = 300.0
"""Response timeout; a worker needs longer for a larger package."""
_WEB_PORT = 8080
_WEB_TLS_PORT = 8443


def derive_admin_url(service_url: str) -> str:
    """Return the URL of the REST interface of a broker on a default port.

    Raises:
        InvalidConfig: the broker's port is not a default one.
    """
    service = parse_service_url(service_url)
    host, port = service.hosts[0]
    usual, scheme, web_port = (
        (DEFAULT_TLS_PORT, "https", _WEB_TLS_PORT) if service.is_tls else (DEFAULT_PORT, "http", _WEB_PORT)
    )
    if port != usual:
        raise InvalidConfig(
            f"cannot derive the REST address from {service_url}, whose port is not {usual}:"
            f" pass admin_url: Client(service_url, admin_url='{scheme}://{host}:{web_port}')"
        )
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{web_port}"


class RestClient:
    """A connection to the REST interface; bound to its event loop."""

    def __init__(self, url: str, connection_timeout_s: float, credentials: ClientCredentials | None = None) -> None:
        """Create a client; connections are opened on demand."""
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig(f"invalid admin_url {url!r}: must begin with http:// or https://")
        self.url = url.rstrip("/")
        self._connection_timeout_s = connection_timeout_s
        self._http = connections(ANSWER_TIMEOUT_S, connection_timeout_s, credentials)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def request(
        self, method: str, path: str, *, parts: Parts | None = None, timeout_s: float | None = ANSWER_TIMEOUT_S
    ) -> Answer:
        """Send a request and return the response.

        Args:
            method: HTTP method.
            path: path relative to the base URL.
            parts: form parts to send.
            timeout_s: response timeout; None means no timeout.

        Raises:
            RequestRefused: the response has an error status; contains the reason.
            ConnectionLost, OperationTimeout, TlsFailed: no response was received.
            CredentialsUnavailable, AuthenticationError: no credentials are available.
        """
        body = None if parts is None else Form(parts)
        timeout = httpx.Timeout(timeout_s, connect=self._connection_timeout_s)
        try:
            answer = await request(self._http, method, self.url + path, body=body, timeout=timeout)
        except NoTls as error:
            raise TlsFailed(error.reason) from error
        except Unreachable as error:
            raise ConnectionLost(
                f"cannot reach {self.url}: start a server with `magnetar standalone`, or set admin_url of the Client"
            ) from error
        except AnswerTimeout as error:
            raise OperationTimeout(f"{self.url} did not respond within {timeout_s:g} s: check its log") from error
        except NoAnswer as error:
            raise ConnectionLost(f"request to {self.url} failed: {error.reason}: check its log") from error
        if not answer.is_success:
            raise RequestRefused(answer.status, answer.reason)
        return answer
