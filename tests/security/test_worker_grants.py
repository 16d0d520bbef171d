"""What a worker knows of grants: asked of the broker, kept for a moment, and no more of it than a bound."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.errors import ConnectionLost
from magnetar.security.authorization.grants import Grants
from magnetar.worker.cluster import grants as module
from magnetar.worker.cluster.grants import KEPT_S, BrokerGrants

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
