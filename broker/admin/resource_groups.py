"""``/admin/v2/resourcegroups``: rate limits shared by the topics of several namespaces.

The topics of all namespaces in a group share its publish rate and its dispatch rate. Pulsar divides these limits among
its brokers; here they apply to the single broker.

Source: Pulsar's ResourceGroupsBase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...web.answers import Refused, as_json
from .bodies import as_int, as_object
from .call import Call
from .namespaces.placement import NO_GROUP
from .routing import Routes

_GROUPS = "/admin/v2/resourcegroups"
_BITS = {
    "publishRateInMsgs": 32,
    "publishRateInBytes": 64,
    "dispatchRateInMsgs": 32,
    "dispatchRateInBytes": 64,
}
"""Limits of a group -> their integer width in Pulsar; -1 is unlimited."""


def _require(call: Call) -> dict[str, Any]:
    limits = call.namespaces.resource_group(call.text("group"))
    if limits is None:
        raise Refused(404, NO_GROUP)
    return limits


async def _put(call: Call) -> None:
    """Create a group, or change the limits in the request."""
    limits = _read(as_object(await call.json(), "resource group"))
    name = call.new_resource_group
    if call.namespaces.resource_group(name) is None:
        await call.namespaces.create_resource_group(name, dict.fromkeys(_BITS, -1) | limits)
    else:
        await call.namespaces.change_resource_group(name, limits)


def _read(body: Mapping[str, Any] | None) -> dict[str, int]:
    if body is None:
        raise Refused(400, "resource group is required: send an object with " + ", ".join(_BITS))
    limits: dict[str, int] = {}
    for field, value in body.items():
        if value is None:
            continue
        if field not in _BITS:
            raise Refused(400, f"unknown resource group field {field!r}: expected {', '.join(_BITS)}")
        number = as_int(value, field, _BITS[field])
        if number is not None:
            limits[field] = number
    return limits


async def _delete(call: Call) -> None:
    _require(call)
    name = call.text("group")
    if call.namespaces.has_members(name):
        raise Refused(412, "ResourceGroup is in use")
    await call.namespaces.delete_resource_group(name)


ROUTES: Routes = (
    ("GET", _GROUPS, lambda call: as_json(call.namespaces.resource_groups())),
    ("GET", f"{_GROUPS}/{{group}}", lambda call: as_json(_require(call))),
    ("PUT", f"{_GROUPS}/{{group}}", _put),
    ("DELETE", f"{_GROUPS}/{{group}}", _delete),
)
