"""``/lookup/v2``: where a topic is served. On one broker: here."""

from __future__ import annotations

from starlette.responses import Response

from ...web.answers import Refused, as_json, as_text
from ..policies.policies import bundle_of
from .call import Call
from .routing import Routes
from .topics.lookup import auto_creation, exists

_TOPIC = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"


async def _lookup(call: Call) -> Response:
    name = call.require_topic_namespace()
    request = call.request
    if listener := request.query_params.get("listenerName") or request.headers.get("x-pulsar-listenername"):
        raise Refused(400, f"the broker has no listener {listener}; leave listenerName out")
    known = call.namespaces.partitions(name.base) or exists(call, name)
    if not known and not auto_creation(call, name).is_allowed:
        raise Refused(404, f"Topic not found {name}")
    return as_json(
        {
            "brokerUrl": call.broker.broker_url,
            "httpUrl": f"http://{call.host}",
            "nativeUrl": call.broker.broker_url,
            "brokerUrlSsl": "",  # always there: the C++ client wants one of two spellings, TLS or not
        }
    )


async def _bundle(call: Call) -> Response:
    name = call.topic
    if not call.namespaces.has_namespace(name.namespace_name):
        return as_text("0x00000000_0xffffffff")
    boundaries = call.namespaces.policies(name.namespace_name)["bundles"]["boundaries"]
    return as_text(bundle_of(boundaries, str(name)))


ROUTES: Routes = (
    ("GET", _TOPIC, _lookup),
    ("GET", f"{_TOPIC}/bundle", _bundle),
)
