"""Router of the admin REST API, with Pulsar's topic domains, Accept rule and error statuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from ...errors import BadVersion, MagnetarError, MetadataUnavailable, NotAllowed, ServiceNotReady, TopicNotFound
from ...web import router
from ...web.answers import Refused
from ...web.guard import Guard
from ...wire.topic_name import DOMAINS
from .call import Call

Handler = router.Handler[Call]
Routes = router.Routes[Call]
DOMAIN, _CHECKED_DOMAIN = "{domain}", "{domain:domain}"
NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
TOPICS = "/admin/v2/{domain}/{tenant}/{namespace}"
TOPIC = f"{TOPICS}/{{topic}}"

_JSON_TYPES = ("application/json", "application/*", "*/*")


class _Domain(StringConvertor):
    """A path parameter that must be a topic domain; with any other value the path does not match."""

    regex = "|".join(DOMAINS)


register_url_convertor("domain", _Domain())


def make_router(
    make: Callable[[Request], Call], routes: Routes, guard: Guard[Call] | None = None
) -> router.RestRouter[Call]:
    """Return the application for a route table in which ``{domain}`` is a topic domain.

    Args:
        make: converts a request to the handlers' call object.
        routes: the route table.
        guard: authorization check that runs before each handler.
    """

    def make_call(request: Request) -> Call:
        _check_accept(request)
        return make(request)

    table = [(method, path.replace(DOMAIN, _CHECKED_DOMAIN), handler) for method, path, handler in routes]
    return router.RestRouter(table, make_call, refuse, "broker", guard)


def path_in_table(path: str) -> str:
    """Return a route's path in the form used in a route table."""
    return path.replace(_CHECKED_DOMAIN, DOMAIN)


def of_existing(find: Callable[[Call], object], answer: Callable[[Call], Response | None]) -> Handler:
    """Return a handler that looks up the object in the path, raising if it is missing, and then calls ``answer``."""

    async def handle(call: Call) -> Response | None:
        found = find(call)
        if isinstance(found, Awaitable):
            await found
        return answer(call)

    return handle


def refuse(error: MagnetarError) -> Refused:
    """Return the response for a broker error."""
    match error:
        case BadVersion():
            return Refused(409, "Concurrent modification")
        case TopicNotFound():
            return Refused(404, str(error))
        case NotAllowed():
            return Refused(412, str(error))
        case ServiceNotReady() | MetadataUnavailable():  # a topic closed meanwhile, or an unavailable store
            return Refused(503, str(error))
    return Refused(500, str(error))


def _check_accept(request: Request) -> None:
    """Reject a client that does not accept JSON. Pulsar labels every admin response as JSON, whatever its content."""
    accept = request.headers.get("accept", "").lower()
    if accept and not any(kind.split(";")[0].strip() in _JSON_TYPES for kind in accept.split(",")):
        raise Refused(406, f"responses are application/json, but the request accepts only {accept}")
