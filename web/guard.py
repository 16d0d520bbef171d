"""Authorization of REST requests before their handlers run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from ..errors import InvalidConfig
from ..security.authorization.deciding import decide
from ..security.authorization.denials import denial
from ..security.authorization.grants import GrantsReader
from ..security.authorization.rules import Resource, RestTable, Rule, Rules
from ..security.authorization.settings import AuthorizationSettings
from ..security.roles import Roles
from .answers import Refused
from .call import Call

C = TypeVar("C", bound=Call)
NOBODY = Roles(None)


class Guard(ABC, Generic[C]):
    """Authorizes each request by its route's rules, before the handler looks up any resources."""

    def __init__(self, settings: AuthorizationSettings, table: RestTable, grants: GrantsReader) -> None:
        self.settings = settings
        self._table = table
        self._grants = grants

    def rules_of(self, method: str, path: str) -> Rules:
        """Return the rules of a route.

        Raises:
            InvalidConfig: the route has no rules.
        """
        rules = self._table.get(("GET" if method == "HEAD" else method, path))
        if not rules:
            raise InvalidConfig(f"authorizationEnabled: no access rule for {method} {path}: add one to the rules table")
        return rules

    async def check(self, call: C, rules: Rules) -> None:
        """Check that a request is authorized.

        Raises:
            Refused: the request is not authorized; has Pulsar's message.
            MagnetarError: the permissions cannot be read.
        """
        for rule in rules:
            resource = self.resource_of(call, rule)
            if resource is not None:
                await self.check_one(call, rule, resource)

    def is_super_user(self, call: C) -> bool:
        """Return whether all roles of a request are superusers."""
        return call.roles is not None and all(map(self.settings.is_super_user, self.settings.judged(call.roles)))

    async def check_one(self, call: C, rule: Rule, resource: Resource) -> None:
        """Check that one operation on one resource is authorized. Raises the same errors as `check`."""
        # A call without roles is impossible while authentication is on; if it happens, it must not be allowed anything.
        roles = call.roles or NOBODY
        refusal = await decide(self.settings, self._grants, roles, rule, resource)
        if refusal is not None:
            raise Refused(*denial(self.settings, roles, rule, resource, refusal))

    @abstractmethod
    def resource_of(self, call: C, rule: Rule) -> Resource | None:
        """Return the resource named by the path parameters of a request.

        The parameters are decoded and validated as in the handler. If None, the handler reports a missing resource.
        """
