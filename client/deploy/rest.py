"""The client's access to the REST interface, with errors translated to the client's own."""

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
            f"the address of the REST interface does not follow from {service_url}, only from port {usual};"
            f" give it: Client(service_url, admin_url='{scheme}://{host}:{web_port}')"
        )
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{web_port}"


class RestClient:
    """A connection to the REST interface; bound to its event loop."""

    def __init__(self, url: str, connection_timeout_s: float, credentials: ClientCredentials | None = None) -> None:
        """Create a client; connections are opened on demand."""
        if not url.startswith(("http://", "https://")):
            raise InvalidConfig(f"admin_url={url!r} does not begin with http:// or https://")
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
            path: relative to the address.
            parts: a form to send.
            timeout_s: response timeout; None waits as long as the connection holds.

        Raises:
            RequestRefused: the response has an error status; holds its reason.
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
                f"cannot reach {self.url}; start one with `magnetar standalone`, or give Client its admin_url"
            ) from error
        except AnswerTimeout as error:
            raise OperationTimeout(f"{self.url} gave no answer in {timeout_s:g} s; look into its log") from error
        except NoAnswer as error:
            raise ConnectionLost(f"talking to {self.url} failed: {error.reason}; look into its log") from error
        if not answer.is_success:
            raise RequestRefused(answer.status, answer.reason)
        return answer
