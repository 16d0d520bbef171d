"""One request to the REST interface of a broker, for planners; blocking, with nothing but the standard library."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, Any
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request

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
    opener = urllib.request.build_opener(ProxyHandler({}), _Redirects)  # a proxy is not the way to a broker
    data = None if body is None else json.dumps(body).encode()
    try:
        request = Request(url, method=method, data=data, headers={"Content-Type": "application/json"})
        with opener.open(request, timeout=ANSWER_TIMEOUT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            reason = " ".join((error.read(2000).decode(errors="replace") or str(error.reason)).split())
        raise RequestRefused(error.code, f"{method} {url} answered {error.code}: {reason}") from error
    except (OSError, ValueError) as error:
        raise ConnectionLost(f"{method} {url} failed: {error}; correct option admin.url") from error


class _Redirects(HTTPRedirectHandler):
    """Sends the whole request to where a cluster's broker points, which `urllib` does for GET alone."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        if code not in (307, 308):
            return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        return Request(newurl, method=req.get_method(), data=req.data, headers=dict(req.header_items()))
