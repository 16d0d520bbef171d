"""Bundle resource quotas, which only Pulsar's load manager uses. This broker has none, so the default always applies.

The default can be read and set. Other values are rejected, because they would have no effect.

Source: Pulsar's ResourceQuotasBase.
"""

from __future__ import annotations

from starlette.responses import Response

from ...web.answers import as_json, not_supported
from .bodies import as_object
from .call import Call
from .routing import Routes
from .topics.lookup import check_bundle

_ALL = "/admin/v2/resource-quotas"
_ONE = f"{_ALL}/{{tenant}}/{{namespace}}/{{bundle}}"
DEFAULT_QUOTA = {
    "msgRateIn": 40.0,
    "msgRateOut": 120.0,
    "bandwidthIn": 100000.0,
    "bandwidthOut": 300000.0,
    "memory": 80.0,
    "dynamic": True,
}


def _check_bundle(call: Call) -> None:
    check_bundle(call, call.require_namespace(), call.text("bundle"))


async def _keep_default(call: Call) -> None:
    quota = as_object(await call.json(), "a resource quota")
    if quota != DEFAULT_QUOTA:
        raise not_supported("changing resource quotas", "no load manager would apply them")


async def _keep_default_of_bundle(call: Call) -> None:
    _check_bundle(call)
    await _keep_default(call)


def _show(call: Call) -> Response:
    _check_bundle(call)
    return as_json(DEFAULT_QUOTA)


ROUTES: Routes = (
    ("GET", _ALL, lambda _: as_json(DEFAULT_QUOTA)),
    ("POST", _ALL, _keep_default),
    ("GET", _ONE, _show),
    ("POST", _ONE, _keep_default_of_bundle),
    ("DELETE", _ONE, _check_bundle),
)
