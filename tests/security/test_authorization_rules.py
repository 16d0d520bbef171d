"""Every route and every command has a row that says who may use it, and each role is answered by that row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.broker.admin import app as admin
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.guard import AdminGuard
from magnetar.broker.admin.routing import make_router
from magnetar.broker.advertised import Advertised
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.authorization import Authorization
from magnetar.broker.session.commands import HANDLERS
from magnetar.errors import InvalidConfig
from magnetar.security.authorization.broker_rules import BROKER_RULES
from magnetar.security.authorization.command_rules import COMMAND_RULES, NOT_DECIDED
from magnetar.security.authorization.grants import Grants, grants_of
from magnetar.security.authorization.operations import NEEDED_ON_NAMESPACE, NEEDED_ON_TOPIC
from magnetar.security.authorization.rules import Resource, RestTable, Rule, Rules, Who
from magnetar.security.authorization.settings import AuthorizationSettings
from magnetar.security.authorization.worker_rules import WORKER_RULES
from magnetar.security.roles import Roles
from magnetar.web.call import ROLES
from magnetar.web.openapi import pages
from magnetar.wire.pulsar_api_pb2 import BaseCommand
from magnetar.wire.session import Role, commands_of
from magnetar.wire.topic_name import parse_topic_name
from magnetar.worker.rest.app import make_app
from magnetar.worker.rest.guard import WorkerGuard
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.security.secured import worker_tables

SETTINGS = AuthorizationSettings(is_enabled=True, super_user_roles=("superuser",))
TENANT = {"adminRoles": ["tenantadmin"], "allowedClusters": ["standalone"]}
GRANTED = {
    "consumer": ["consume"], "producer": ["produce"], "functions": ["functions"], "sources": ["sources"],
    "sinks": ["sinks"], "packages": ["packages"],
}  # fmt: skip
POLICIES = {"auth_policies": {"namespace_auth": GRANTED}}
ASKING = (None, "stranger", "foreign", *GRANTED, "tenantadmin", "superuser")
"""None has a credential without a role, `foreign` administers another tenant."""
VALUES = {
    "tenant": "sec", "namespace": "ns", "topic": "t", "domain": "persistent", "subscription": "s", "type": "function",
}  # fmt: skip


class Memory(Authorization):
    """Grants of two tenants, without a broker."""

    def __init__(self) -> None:
        self.settings = SETTINGS

    def grants(self, tenant: str, namespace: str) -> Grants:
        info = {"sec": TENANT, "other": {"adminRoles": ["foreign"]}}.get(tenant)
        return grants_of(info, POLICIES if namespace == "sec/ns" else None)


class As:
    """The application, asked by a role that a header names."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        role = dict(scope["headers"]).get(b"role")
        scope[ROLES] = Roles(None if role is None else role.decode())
        await self._app(scope, receive, send)


def done(_: Any) -> None:
    """Answer 204."""


async def no_metrics() -> bytes:
    return b""


class AnyNamespace:
    """Stands for names of which all exist."""

    def has_namespace(self, _: str) -> bool:
        return True


class UnadvertisedBroker:
    """Stands for a broker whose settings name no address for clients."""

    advertised = Advertised(BrokerConfig(data_dir=Path("unused")))


def broker_app(guard: AdminGuard | None = None) -> ASGIApp:
    shown = pages("t", "1", ())
    routes = [(method, path, done) for method, path, _ in (*shown, *admin.ROUTES)]
    broker: Any = UnadvertisedBroker()
    namespaces: Any = AnyNamespace()
    return make_router(lambda request: Call(request, broker, namespaces, False), routes, guard or AdminGuard(Memory()))


def worker_app() -> ASGIApp:
    tables = [[(method, path, done) for method, path, _ in table] for table in worker_tables()]
    return make_app(tables, no_metrics, WorkerGuard(SETTINGS, Memory()))


def routes_of(table: RestTable, routes: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str, Rules]]:
    for method, path in routes:
        yield method, path, table[method, path]


def filled(path: str) -> str:
    """A path with something in the place of each parameter."""
    parts = []
    for part in path.split("/"):
        name = part.strip("{}").split(":")[0]
        parts.append(VALUES.get(name, "x") if part.startswith("{") else part)
    return "/".join(parts)


def may(role: str | None, rule: Rule, path: str) -> bool:
    """What is expected of a rule, said once more and in other words."""
    if rule.who in (Who.EVERYBODY, Who.EVERY_ROLE, Who.BY_THE_HANDLER) or role == "superuser":
        return True
    if rule.who in (Who.SUPER_USER, Who.CLUSTER, Who.CLUSTER_POLICY, Who.BROKER, Who.WORKER, Who.TENANTS):
        return False
    if "{tenant}" not in path:
        return False
    if role == "tenantadmin":
        return True
    needed = {**NEEDED_ON_NAMESPACE, **NEEDED_ON_TOPIC}.get(rule.operation, ()) if rule.operation else ()
    by_grant = rule.who in (Who.NAMESPACE, Who.COMPONENT, Who.PACKAGES, Who.TOPIC)
    return by_grant and any(action.value in GRANTED.get(role or "", ()) for action in needed)


BROKER_ROUTES = [(method, path) for method, path, _ in admin.ROUTES]
WORKER_ROUTES = [(method, path) for table in worker_tables() for method, path, _ in table]


@pytest.mark.slow
@pytest.mark.parametrize("server", ["broker", "worker"])
async def test_each_role_may_use_the_routes_that_their_rows_say(server: str) -> None:
    app, table, routes = {
        "broker": (broker_app(), BROKER_RULES, BROKER_ROUTES),
        "worker": (worker_app(), WORKER_RULES, WORKER_ROUTES),
    }[server]
    found = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(As(app)), base_url="http://127.0.0.1:1") as http:
        for method, path, rules in routes_of(table, iter(routes)):
            for role in ASKING:
                headers = {} if role is None else {"role": role}
                answer = await http.request(method, filled(path), headers=headers)
                expected = all(may(role, rule, path) for rule in rules)
                if (answer.status_code == 204) != expected or (not expected and answer.status_code not in (401, 403)):
                    found.append(f"{method} {path} as {role}: {answer.status_code} {answer.text}")
    assert not found, f"{len(found)} of {len(routes) * len(ASKING)}:\n" + "\n".join(found)


def test_each_route_has_a_row_and_each_row_a_route() -> None:
    shown = {("GET", path) for path in ("/openapi.json", "/docs", "/redoc")}
    of_app = {("GET", path) for path in ("/metrics", "/version", "/initialized")}
    assert set(BROKER_ROUTES) | shown <= set(BROKER_RULES)
    assert set(WORKER_ROUTES) | shown | of_app <= set(WORKER_RULES)
    policies = {
        rule.who for key, rules in BROKER_RULES.items() if key not in {*BROKER_ROUTES, *shown} for rule in rules
    }
    assert policies == {Who.NAMESPACE_POLICY, Who.TOPIC_POLICY}  # for which there is a row for each method


def test_a_route_without_a_row_keeps_a_server_from_starting() -> None:
    def app(guard: AdminGuard | None) -> ASGIApp:
        nothing: Any = None
        return make_router(
            lambda request: Call(request, nothing, nothing, False), [("GET", "/admin/v2/new", done)], guard
        )

    app(None)
    with pytest.raises(InvalidConfig, match=r"no access rule for GET /admin/v2/new: add one to the rules table"):
        app(AdminGuard(Memory()))


def test_each_command_of_a_client_has_a_row() -> None:
    decided, others = set(COMMAND_RULES), set(NOT_DECIDED)
    assert decided | others == set(commands_of(Role.CLIENT)) == set(HANDLERS) | {BaseCommand.SEND}
    assert not decided & others


@pytest.mark.parametrize("kind", sorted(COMMAND_RULES), ids=BaseCommand.Type.Name)
def test_each_role_may_send_the_commands_that_their_rows_say(kind: int) -> None:
    rule = COMMAND_RULES[kind].rule
    resource = Resource.of_topic(parse_topic_name("persistent://sec/ns/t"), "s")
    for role in ASKING:
        allowed = Memory().judge(Roles(role), rule, resource) is None
        assert allowed == may(role, rule, "{tenant}"), role


async def test_a_topic_is_the_one_that_the_handler_takes_it_for() -> None:
    seen: list[str] = []

    class Noting(Memory):
        def grants(self, tenant: str, namespace: str) -> Grants:
            seen.append(namespace)
            return super().grants(tenant, namespace)

    app = As(broker_app(AdminGuard(Noting())))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as http:
        for path in ("/admin/v2/persistent/sec/%6es/a+b%2Fc/stats", "/admin/v2/persistent/s%65c/ns/t/stats"):
            answer = await http.get(path, headers={"role": "stranger"})
            assert answer.status_code == (412 if "%2F" in path else 401)
    assert set(seen) == {"sec/ns"}
