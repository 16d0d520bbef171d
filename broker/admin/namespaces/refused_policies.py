"""Unsupported namespace policies, rejected by name.

Every Pulsar policy can be read; unsupported ones read as unset. They can be set to a neutral value (off, none), while
any other value is rejected, so that no policy is silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, not_supported, nothing, refusal, refusing
from ...policies.policies import Policies
from ..bodies import as_bool, as_object
from ..call import Call
from ..routing import NAMESPACE, Handler, Routes, of_existing

_LATER = "leave it unset"


@dataclass(frozen=True)
class _Unsupported:
    """A policy that this broker does not support.

    Attributes:
        name: last segment of the path.
        unset: response to a read; None means 200 without a body.
        verb: HTTP method for setting the policy.
        is_removable: whether Pulsar has a DELETE for the policy; otherwise Pulsar parses the name as a bundle.
        field: field name in the policies object, or an empty string if stored elsewhere.
        setter: handler for setting the policy, if comparing the value is not enough.
        missing: error message for setting the policy on a missing namespace.
    """

    name: str
    unset: Any = None
    verb: str = "POST"
    is_removable: bool = True
    field: str = ""
    setter: Handler | None = None
    missing: str = "Namespace does not exist"


def refuse_unsupported(policies: Policies, wanted: Mapping[str, Any]) -> None:
    """Reject unsupported policies of a new namespace unless they equal the defaults in ``policies``.

    Empty, disabled and default values are accepted, as clients send complete objects full of them.

    Raises:
        Refused: 501 for an unsupported Pulsar policy, 400 for an unknown field.
    """
    named = {policy.field: policy.name for policy in _UNSUPPORTED} | _OTHER_UNSUPPORTED_FIELDS
    for field, value in wanted.items():
        asks_for_something = value and value != -1 and value != policies.get(field)
        if asks_for_something:
            if field not in named:
                raise Refused(400, f"unknown policies field {field}")
            raise not_supported(f"namespace policy {named[field]} ({field})", _LATER)


def _refuse_setting(policy: _Unsupported) -> Handler:
    async def refuse(call: Call) -> None:
        value = await call.json()
        call.require_namespace(policy.missing)
        if isinstance(policy.unset, bool):
            value = as_bool(value, policy.name)
        is_off = policy.unset is None and not value
        if value is not None and value != policy.unset and not is_off:
            raise not_supported(f"namespace policy {policy.name}", _LATER)

    return refuse


async def _refuse_offload(call: Call) -> None:
    policies = as_object(await call.json(), "offloadPolicies")
    call.require_namespace()
    if policies is None:
        raise Refused(412, "The offloadPolicies must be specified for namespace offload.")
    if policies.get("managedLedgerOffloadDriver"):
        raise not_supported("namespace policy offloadPolicies", _LATER)


def _of_namespace(answer: Callable[[Call], Response | None], absent: str = "Namespace does not exist") -> Handler:
    return of_existing(lambda call: call.require_namespace(absent), answer)


def _refuse(name: str, absent: str = "Namespace does not exist") -> Handler:
    return _of_namespace(refusing(not_supported(f"namespace policy {name}", _LATER)), absent)


def _no_bundle(call: Call) -> Response:
    return refusal(Refused(412, f"Invalid bundle range: {call.request.scope['path'].rsplit('/', 1)[1]}"))


def _show_unset(policy: _Unsupported) -> Handler:
    return _of_namespace(lambda _: nothing() if policy.unset is None else as_json(policy.unset))


_UNSUPPORTED = (
    _Unsupported("offloadThreshold", -1, "PUT", is_removable=False, field="offload_threshold"),
    _Unsupported("offloadThresholdInSeconds", -1, "PUT", is_removable=False, field="offload_threshold_in_seconds"),
    _Unsupported("offloadDeletionLagMs", verb="PUT", field="offload_deletion_lag_ms"),
    _Unsupported("offloadPolicies", is_removable=False, field="offload_policies", setter=_refuse_offload),
)
_OTHER_UNSUPPORTED_FIELDS = {
    "clusterDispatchRate": "dispatchRate by its old name; use topicDispatchRate:",
    "latency_stats_sample_rate": "latency_stats_sample_rate",
    "migrated": "migration",
    "deleted": "deleted",
}


def _unsupported_routes() -> Iterator[tuple[str, str, Handler]]:
    for policy in _UNSUPPORTED:
        path = f"{NAMESPACE}/{policy.name}"
        yield "GET", path, _show_unset(policy)
        yield policy.verb, path, policy.setter or _refuse_setting(policy)
        yield "DELETE", path, _DONE if policy.is_removable else _NO_BUNDLE


_DONE = _of_namespace(lambda _: None)
_NO_BUNDLE = _of_namespace(_no_bundle)
ROUTES: Routes = (
    ("DELETE", f"{NAMESPACE}/removeOffloadPolicies", _DONE),
    ("POST", f"{NAMESPACE}/migration", _refuse("migration")),
    ("DELETE", f"{NAMESPACE}/replication", _NO_BUNDLE),
    ("DELETE", f"{NAMESPACE}/allowedClusters", _NO_BUNDLE),
    *_unsupported_routes(),
)
