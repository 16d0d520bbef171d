"""Requests that come by another way than a table of routes suggests are decided all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.security.secured import Secured, make_golden_world, secured

pytestmark = pytest.mark.slow

STATS = "/admin/v2/persistent/sec/ns/t/stats"
MANY = "/admin/v2/namespaces/{}PermissionsOnTopics"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        yield broker


@pytest.mark.parametrize("verb", ["grant", "revoke"])
async def test_permissions_on_many_topics_are_for_administrators_of_their_tenant(broker: Secured, verb: str) -> None:
    await broker.superuser(
        "PUT", "/admin/v2/tenants/other", {"adminRoles": ["foreign"], "allowedClusters": ["standalone"]}
    )
    body = [{"topic": f"persistent://sec/ns/{name}", "role": "x", "actions": ["produce"]} for name in ("t", "u")]
    for role in ("consumer", "foreign", None):
        answer = await broker.call(role, "POST", MANY.format(verb), body)
        assert answer.status_code == (403 if role is None else 401)
    assert (await broker.call("tenantadmin", "POST", MANY.format(verb), body)).status_code == 204
    granted = broker.namespaces.policies("sec/ns")["auth_policies"]["destination_auth"]
    assert granted == ({row["topic"]: {"x": ["produce"]} for row in body} if verb == "grant" else {})


async def test_no_form_of_a_request_passes_by(broker: Secured) -> None:
    for method, path in (
        ("HEAD", STATS), ("GET", f"{STATS}/"), ("GET", STATS.replace("sec/ns", "s%65c/n%73")),
        ("GET", STATS.replace("/t/", "/%74/")), ("GET", f"{STATS}?tenant=other&authoritative=true"),
    ):  # fmt: skip
        assert (await broker.call("stranger", method, path)).status_code == 401, (method, path)
        assert (await broker.call("consumer", method, path)).status_code == 200, (method, path)


async def test_a_grant_by_an_odd_name_opens_no_other_topic(broker: Secured) -> None:
    topics = "/admin/v2/persistent/sec/ns"
    for local in ("a+b", "a%20b", "a%2Bb"):
        await broker.call("superuser", "PUT", f"{topics}/{local}")
    await broker.superuser("POST", f"{topics}/a%2Bb/permissions/stranger", ["consume"])
    assert [(await broker.call("stranger", "GET", f"{topics}/{local}/stats")).status_code for local in (
        "a%2Bb", "a+b", "a%20b"
    )] == [200, 401, 401]  # fmt: skip


async def test_a_right_ends_with_its_topic(broker: Secured) -> None:
    topic = "/admin/v2/persistent/sec/ns/mine"
    await broker.superuser("PUT", topic)
    await broker.superuser("POST", f"{topic}/permissions/stranger", ["consume"])
    assert (await broker.call("stranger", "GET", f"{topic}/stats")).status_code == 200
    await broker.superuser("DELETE", topic)
    await broker.superuser("PUT", topic)
    assert (await broker.call("stranger", "GET", f"{topic}/stats")).status_code == 401


async def test_who_administers_a_tenant_changes_with_it(broker: Secured) -> None:
    async def may(role: str) -> bool:
        return (await broker.call(role, "GET", "/admin/v2/namespaces/sec")).is_success

    assert [await may(role) for role in ("tenantadmin", "new")] == [True, False]
    info: dict[str, Any] = {"adminRoles": ["new"], "allowedClusters": ["standalone"]}
    assert (await broker.call("tenantadmin", "POST", "/admin/v2/tenants/sec", info)).status_code == 204
    assert [await may(role) for role in ("tenantadmin", "new")] == [False, True]
    assert (await broker.call("superuser", "GET", "/admin/v2/tenants/sec")).json() == info


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/v2/namespaces/missing"),
        ("PUT", "/admin/v2/namespaces/missing/ns"),
        ("GET", "/admin/v2/namespaces/missing/ns/topics"),
        ("GET", "/admin/v2/namespaces/missing/ns/retention"),
        ("GET", "/admin/v2/namespaces/missing/ns/permissions"),
        ("GET", "/admin/v2/persistent/missing/ns/t/stats"),
        ("GET", "/admin/v2/persistent/missing/ns/t/retention"),
        ("GET", "/admin/v2/schemas/missing/ns/t/schema"),
    ],
)
async def test_roles_learn_that_a_tenant_does_not_exist(broker: Secured, method: str, path: str) -> None:
    answer = await broker.call("stranger", method, path)
    assert (answer.status_code, answer.json()["reason"]) == (404, "Tenant does not exist")


async def test_the_tenant_itself_is_hidden_from_roles_without_rights(broker: Secured) -> None:
    assert (await broker.call("stranger", "GET", "/admin/v2/tenants/missing")).status_code == 401
    assert (await broker.call("stranger", "PUT", "/admin/v2/namespaces/missing/ns/unload")).status_code == 401
