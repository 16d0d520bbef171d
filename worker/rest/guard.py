"""Authorization of the worker's REST interface: determines a request's resource from the names in its path."""

from __future__ import annotations

from ...security.authorization.grants import GrantsReader
from ...security.authorization.rules import Resource, Rule, Who
from ...security.authorization.settings import AuthorizationSettings
from ...security.authorization.worker_rules import WORKER_RULES
from ...web.guard import Guard
from .app import WorkerCall

_ON_NAMESPACES = frozenset((Who.COMPONENT, Who.PACKAGES))


class WorkerGuard(Guard[WorkerCall]):
    """Authorizes requests before a worker handles them."""

    def __init__(self, settings: AuthorizationSettings, grants: GrantsReader) -> None:
        super().__init__(settings, WORKER_RULES, grants)

    def resource_of(self, call: WorkerCall, rule: Rule) -> Resource | None:
        """Return the resource of a request."""
        if rule.who in _ON_NAMESPACES:
            return Resource.of_namespace(f"{call.name('tenant')}/{call.name('namespace')}")
        return Resource()
