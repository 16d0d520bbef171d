"""What stands before the handlers of a REST interface when authorization is on."""

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
    """Decides each request by the rules of its route, before the handler looks for what the request names."""

    def __init__(self, settings: AuthorizationSettings, table: RestTable, grants: GrantsReader) -> None:
        self.settings = settings
        self._table = table
        self._grants = grants

    def rules_of(self, method: str, path: str) -> Rules:
        """Return the rules of a route.

        Raises:
            InvalidConfig: there are none.
        """
        rules = self._table.get(("GET" if method == "HEAD" else method, path))
        if not rules:
            raise InvalidConfig(
                f"authorizationEnabled: nothing says who may use {method} {path}; add a row to its rules"
            )
        return rules

    async def check(self, call: C, rules: Rules) -> None:
        """Let a request pass.

        Raises:
            Refused: it is not allowed, in Pulsar's words.
            MagnetarError: what is granted cannot be read.
        """
        for rule in rules:
            resource = self.resource_of(call, rule)
            if resource is not None:
                await self.check_one(call, rule, resource)

    async def check_one(self, call: C, rule: Rule, resource: Resource) -> None:
        """Let a request pass that does one thing to one resource; raises as `check`."""
        # Without roles nobody knows who asks, which cannot be while authentication is on: it must not open anything.
        roles = call.roles or NOBODY
        refusal = await decide(self.settings, self._grants, roles, rule, resource)
        if refusal is not None:
            raise Refused(*denial(self.settings, roles, rule, resource, refusal))

    @abstractmethod
    def resource_of(self, call: C, rule: Rule) -> Resource | None:
        """Return what a request is about, by the parameters in its path.

        It is what the handler takes them for: decoded alike, checked alike. None lets the handler say that it does not
        exist.
        """
