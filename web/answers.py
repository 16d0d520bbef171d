"""What an admin request is answered with, in Pulsar's forms."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from ..wire.printable import printable


class Refused(Exception):
    """The request is answered with an error status and one line saying why.

    Attributes:
        status: HTTP status.
        reason: the line; Pulsar's own words where Pulsar has this error.
        headers: further headers of the answer.
    """

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


def done() -> Response:
    """Return 204, the answer to most writes."""
    return Response(status_code=204)


def nothing() -> Response:
    """Return 200 without a body: a policy that is not set, or one of the few writes that Pulsar answers so."""
    return Response(status_code=200)


def as_json(value: Any, status: int = 200) -> Response:
    """Return ``value`` as JSON."""
    return Response(encode(value), status, media_type="application/json")


def as_text(text: str) -> Response:
    """Return bare text, which Pulsar labels as JSON all the same."""
    return Response(text, media_type="application/json")


def refusal(error: Refused) -> Response:
    """Return the answer for a refused request."""
    reason = printable(" ".join(error.reason.splitlines()))  # the spaces are Pulsar's, two of them at one place
    return Response(encode({"reason": reason}), error.status, headers=error.headers, media_type="application/json")


def encode(value: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def not_supported(what: str, remedy: str) -> Refused:
    """Return the refusal of a feature that this broker does not have: never accept what would be ignored."""
    return Refused(501, f"{what} is not supported by this broker; {remedy}")
