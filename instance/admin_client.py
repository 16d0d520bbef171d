"""The client returned by `Context.admin`, for requests to the broker's admin REST interface."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidConfig, RequestRefused
from ..security.client_credentials import ClientCredentials
from ..web.client import request, with_query

TIMEOUT_S = 30.0


class AdminClient:
    """A thread-safe client of the cluster's admin REST interface.

    Paths are those of Pulsar, such as ``/admin/v2/persistent/public/default``.
    """

    def __init__(self, url: str, credentials: ClientCredentials | None = None) -> None:
        """Create a client for a REST interface.

        Args:
            url: ``http://host:port``, or ``https://…``.
            credentials: credentials for each request, or None.
        """
        self.url = url.rstrip("/")
        self._credentials = credentials

    def get(self, path: str, **params: Any) -> Any:
        """Send a GET request and return the JSON of the response; keyword arguments become the query."""
        return self.request("GET", path, params=params)

    def put(self, path: str, body: Any = None, **params: Any) -> Any:
        """Send a PUT request with a JSON body, and return the JSON of the response, or None."""
        return self.request("PUT", path, body, params)

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        """Send a POST request with a JSON body, and return the JSON of the response, or None."""
        return self.request("POST", path, body, params)

    def delete(self, path: str, **params: Any) -> Any:
        """Send a DELETE request, and return the JSON of the response, or None."""
        return self.request("DELETE", path, params=params)

    def request(self, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Any:
        """Send a request and return the JSON of the response, or None.

        Raises:
            InvalidConfig: the path does not begin with a slash.
            RequestRefused: the response has an error status; the exception has status and reason.
            ConnectionLost: the server did not respond.
        """
        if not path.startswith("/"):
            raise InvalidConfig(
                f"invalid path {path!a:.80}: expected a path such as /admin/v2/clusters, beginning with /"
            )
        url = with_query(self.url + path, params)
        answer = request(method, url, body=body, timeout_s=TIMEOUT_S, credentials=self._credentials)
        if not answer.is_success:
            raise RequestRefused(answer.status, answer.reason)
        return answer.json()
