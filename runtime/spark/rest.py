"""One request to the REST interface of a broker, for planners; blocking, with nothing but the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from ...errors import ConnectionLost, RequestRefused

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
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy is not the way to a broker
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with opener.open(request, timeout=ANSWER_TIMEOUT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            reason = " ".join(error.read(2000).decode(errors="replace").split())
        raise RequestRefused(error.code, f"{method} {url} answered {error.code}: {reason}") from error
    except (OSError, ValueError) as error:
        raise ConnectionLost(f"{method} {url} failed: {error}; correct option admin.url") from error
