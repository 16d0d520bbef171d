"""One request to the REST interface of a broker, for planners; blocking."""

from __future__ import annotations

from typing import Any

from ...errors import ConnectionLost, RequestRefused
from ...web.client import NoAnswer, request

ANSWER_TIMEOUT_S = 30.0


def ask(admin_url: str, method: str, path: str, body: Any = None) -> Any:
    """Return the JSON of the answer, None for an empty one.

    Args:
        admin_url: of the REST interface.
        method: of HTTP.
        path: below the address.
        body: sent as JSON; None sends nothing.

    Raises:
        RequestRefused: the answer is an error.
        ConnectionLost: there is none that can be read.
    """
    url = f"{admin_url.rstrip('/')}{path}"
    try:
        answer = request(method, url, body=body, timeout_s=ANSWER_TIMEOUT_S)
        if not answer.is_success:
            raise RequestRefused(answer.status, f"{method} {url} answered {answer.status}: {answer.reason}")
        return answer.json()
    except NoAnswer as error:
        raise ConnectionLost(f"{method} {url} failed: {error.reason}; correct option admin.url") from error
