"""Namespace schema policies; applied in `broker.policies.namespaces`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, refusing
from ...policies.policies import OLD_STRATEGIES, Policies
from ..call import Call
from ..routing import NAMESPACE, Handler, Routes, of_existing
from ..topics.policies import as_enforced, as_strategy

STRATEGY = "schema_compatibility_strategy"
OLD_STRATEGY = "schema_auto_update_compatibility_strategy"
ALLOWS_UPDATES = "is_allow_auto_update_schema"
IS_ENFORCED = "schema_validation_enforced"


def _as_old_strategy(body: Any) -> str | None:
    if body is not None and (not isinstance(body, str) or body not in OLD_STRATEGIES):
        raise Refused(400, f"invalid schema strategy {body!a:.80}: expected one of {', '.join(OLD_STRATEGIES)}")
    return body or None


_READERS: dict[str, Callable[[Any], Any]] = {
    STRATEGY: lambda body: as_strategy(body) or "UNDEFINED",
    OLD_STRATEGY: _as_old_strategy,
    ALLOWS_UPDATES: as_enforced,
    IS_ENFORCED: as_enforced,
}


def take(wanted: dict[str, Any], policies: Policies) -> None:
    """Move the schema fields of a new namespace into its policies.

    Raises:
        Refused: a value is invalid.
    """
    for field, read in _READERS.items():
        value = wanted.pop(field, None)
        if value is not None:
            policies[field] = read(value)


def shown(call: Call) -> Policies:
    """Return the policies of the namespace in the path, in Pulsar's format."""
    return {ALLOWS_UPDATES: call.broker.config.allow_auto_update_schema} | call.policies


def _get(field: str) -> Handler:
    def answer(call: Call) -> Response:
        value = shown(call).get(field)
        is_applied = field == IS_ENFORCED and call.flag("applied")
        return as_json(bool(value) or (is_applied and call.broker.config.enforce_schema_validation))

    def strategy(call: Call) -> Response | None:
        value = call.policies.get(field)
        return None if value is None else as_json(value)

    return strategy if field in (STRATEGY, OLD_STRATEGY) else answer


def _set(field: str) -> Handler:
    async def change(call: Call) -> None:
        value = _READERS[field](await call.json())
        namespace = call.require_namespace()
        await call.namespaces.change_policies(namespace, lambda policies: policies | {field: value})

    return change


def _no_bundle(name: str) -> Handler:
    # Pulsar has no DELETE and parses the name as a bundle.
    refused = refusing(Refused(412, f"Invalid bundle range: {name}"))
    return of_existing(lambda call: call.require_namespace(), refused)


def _routes(method: str, name: str, field: str) -> Routes:
    path = f"{NAMESPACE}/{name}"
    return ("GET", path, _get(field)), (method, path, _set(field)), ("DELETE", path, _no_bundle(name))


ROUTES: Routes = (
    *_routes("PUT", "schemaCompatibilityStrategy", STRATEGY),
    *_routes("PUT", "schemaAutoUpdateCompatibilityStrategy", OLD_STRATEGY),
    *_routes("POST", "isAllowAutoUpdateSchema", ALLOWS_UPDATES),
    *_routes("POST", "schemaValidationEnforced", IS_ENFORCED),
)
