"""What a worker knows of grants: asked of the broker, kept for a moment, and no more of it than a bound."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from magnetar.errors import ConnectionLost, UnknownBrokerError
from magnetar.security.authorization.deciding import decide
from magnetar.security.authorization.grants import Grants
from magnetar.security.authorization.operations import NamespaceOperation
from magnetar.security.authorization.rules import Resource, Rule, Who
from magnetar.security.authorization.settings import AuthorizationSettings
from magnetar.security.client_credentials import ClientCredentials
from magnetar.security.credentials.client_security import ClientSecurity
from magnetar.security.roles import Roles
from magnetar.worker.cluster import grants as module
from magnetar.worker.cluster.broker_admin import BrokerAdmin
from magnetar.worker.cluster.grants import KEPT_S, BrokerGrants

from tests.security.secured import make_golden_world, secured
from tests.support.tokens import token

POLICIES = {"auth_policies": {"namespace_auth": {"a": ["functions"]}}, "subscription_auth_mode": "Prefix"}


class Admin:
    """A broker that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_gone = False

    async def tenant_info(self, tenant: str) -> dict[str, Any] | None:
        self._note(tenant)
        return {"adminRoles": ["boss"]} if tenant == "t" else None

    async def policies(self, namespace: str) -> dict[str, Any] | None:
        self._note(namespace)
        return POLICIES if namespace == "t/n" else None

    def _note(self, what: str) -> None:
        if self.is_gone:
            raise ConnectionLost("gone")
        self.asked.append(what)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def admin() -> Admin:
    return Admin()


def reader(admin: Admin, clock: Clock | None = None) -> BrokerGrants:
    return BrokerGrants(admin, clock or Clock())  # type: ignore[arg-type]


async def test_an_answer_counts_for_a_moment(admin: Admin) -> None:
    clock = Clock()
    grants = reader(admin, clock)
    found = [await grants.read("t", "t/n") for _ in range(3)]
    assert found == [Grants(True, ["boss"], {"a": ["functions"]}, {}, {}, True)] * 3
    assert admin.asked == ["t", "t/n"]
    clock.now_s = KEPT_S
    await grants.read("t", "t/n")
    assert admin.asked == ["t", "t/n"] * 2


async def test_what_was_kept_allows_and_does_not_refuse(admin: Admin) -> None:
    grants, settings = reader(admin), AuthorizationSettings(is_enabled=True)
    rule, resource = Rule(Who.COMPONENT, NamespaceOperation.FUNCTIONS), Resource.of_namespace("t/n")
    for role, asked in (("a", 2), ("a", 0), ("b", 2), ("b", 2)):
        admin.asked.clear()
        refusal = await decide(settings, grants, Roles(role), rule, resource)
        assert (refusal is None, len(admin.asked)) == (role == "a", asked)
    admin.asked.clear()
    assert await decide(settings, grants, Roles("b"), Rule(Who.EVERY_ROLE), resource) is None
    assert await decide(settings, grants, Roles("a"), Rule(Who.WORKER), resource) is not None
    assert admin.asked == []


async def test_an_absent_tenant_or_namespace_grants_nothing(admin: Admin) -> None:
    assert await reader(admin).read("none", "none/n") == Grants()
    assert await reader(admin).read("t", "t/none") == Grants(True, ["boss"])
    assert await reader(admin).read("t", "") == Grants(True, ["boss"])


async def test_a_broker_that_is_gone_grants_nothing_anew(admin: Admin) -> None:
    admin.is_gone = True
    with pytest.raises(ConnectionLost):
        await reader(admin).read("t", "t/n")


async def test_who_asks_for_many_namespaces_fills_no_memory(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 3)
    grants = reader(admin)
    for number in range(10):
        await grants.read("t", f"t/{number}")
    admin.asked.clear()
    for number in (9, 8, 7, 0):
        await grants.read("t", f"t/{number}")
    assert admin.asked == ["t", "t/0"]


@pytest.mark.slow
async def test_a_worker_reads_what_the_broker_decides_by(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        await broker.superuser("POST", "/admin/v2/namespaces/sec/ns/permissions/subscription/lim", ["consumer"])
        credentials = ClientCredentials(ClientSecurity(auth_plugin="token", auth_params=token("superuser")))
        async with aclosing(BrokerAdmin(broker.web_url, credentials)) as admin:
            found = await BrokerGrants(admin).read("sec", "sec/ns")
            assert await BrokerGrants(admin).read("none", "none/ns") == Grants()
        assert broker.service.authorization is not None
        assert found == broker.service.authorization.grants("sec", "sec/ns")
        assert found.by_namespace["functions"] == ["functions"]
        stranger = ClientCredentials(ClientSecurity(auth_plugin="token", auth_params=token("stranger")))
        async with aclosing(BrokerAdmin(broker.web_url, stranger)) as admin:
            with pytest.raises(UnknownBrokerError, match="returned 401"):
                await BrokerGrants(admin).read("sec", "sec/ns")
