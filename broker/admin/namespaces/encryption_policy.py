"""Namespace encryption policy; enforced in `broker.topics.gate`."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, refusing
from ...policies.policies import Policies
from ..bodies import as_bool
from ..call import Call
from ..routing import NAMESPACE, Routes, of_existing

FIELD = "encryption_required"
NAME = "encryptionRequired"


def take(wanted: dict[str, Any], policies: Policies) -> None:
    """Move the encryption field of a new namespace into its policies; raises Refused if it is not a boolean."""
    policies[FIELD] = bool(as_bool(wanted.pop(FIELD, None), NAME))


def _get(call: Call) -> Response:
    return as_json(bool(call.policies.get(FIELD)))


async def _set(call: Call) -> None:
    is_required = bool(as_bool(await call.json(), NAME))
    namespace = call.require_namespace()
    await call.namespaces.change_policies(namespace, lambda policies: policies | {FIELD: is_required})


_PATH = f"{NAMESPACE}/{NAME}"
# Pulsar has no DELETE and parses the name as a bundle.
_NO_BUNDLE = refusing(Refused(412, f"Invalid bundle range: {NAME}"))
ROUTES: Routes = (
    ("GET", _PATH, _get),
    ("POST", _PATH, _set),
    ("DELETE", _PATH, of_existing(lambda call: call.require_namespace(), _NO_BUNDLE)),
)
