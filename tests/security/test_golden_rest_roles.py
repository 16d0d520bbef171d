"""Every REST answer that a real Pulsar gave to each role is what we answer, but for a short list with reasons.

A refusal is compared word by word, by status and body; what is allowed by its status. Where we allow something and then
answer otherwise, it is another feature that differs, and it is named.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.broker.admin.forward import PACKAGES, forwards
from magnetar.security.authorization.settings import AuthorizationSettings

from tests.security.secured import Secured, make_golden_world, secured
from tests.support.tokens import token

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent.parent / "golden" / "auth" / "rest-matrix.jsonl"
ROLES = ("stranger", "consumer", "producer", "functions", "tenantadmin", "superuser")
POSITION = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}
SCHEMA = {"type": "STRING", "schema": "", "properties": {}}
TENANT = {"adminRoles": ["tenantadmin"], "allowedClusters": ["standalone"]}
PERSISTENCE = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
BODIES: tuple[tuple[str, str, Any], ...] = (
    ("PUT|POST", r"/admin/v2/tenants/.*", TENANT),
    ("PUT", r"/admin/v2/clusters/.*", {"serviceUrl": "http://127.0.0.1:1"}),
    ("POST", r".*/permissions/subscription/s1", ["g1"]),
    ("POST", r".*/permissions/.*", ["produce"]),
    ("POST", r".*/retention", RETENTION),
    ("POST", r".*/messageTTL", 60),
    ("POST", r".*/deduplication", True),
    ("POST", r".*/persistence", PERSISTENCE),
    ("POST", r".*/maxProducersPerTopic", 5),
    ("POST", r".*/subscriptionAuthMode", "None"),
    ("PUT", r".*/partitions", 2),
    ("POST", r".*/partitions", 3),
    ("PUT", r".*/t/properties", {"k": "v"}),
    ("PUT", r".*/(offload|backlogSize)", POSITION),
    ("PUT", r".*/t/subscription/.*", POSITION),
    ("POST", r"/admin/v2/schemas/.*", SCHEMA),
)
"""What the recorded requests had as body, which is not recorded."""

DIFFERENT: dict[tuple[str, str, str], str] = {
    **{
        ("GET", "/ws/v2/none", role): "a path that is not served is no exception: who asks has to say who it is"
        for role in ("none", "invalid", "expired")
    },
    ("GET", "/admin/v2/tenants", "consumer for consumer"): "an original that is the role itself is not told apart",
}
"""Rows that are answered otherwise, with the reason; each must differ."""

NOT_DENIED: tuple[tuple[str, str, str], ...] = (
    ("PUT", r"/admin/v2/namespaces/sec/ns/0x.*/split", "one broker has all bundles: 501"),
    ("DELETE", r"/admin/v2/namespaces/sec/ns/permissions/s1/g1", "the second of two is no error here"),
    ("POST", r"/admin/v2/namespaces/sec/ns/clearBacklog/none", "a 404 instead of an error inside"),
    ("PUT", r"/admin/v2/persistent/sec/ns/t/compaction", "nothing is compacted that long"),
    ("PUT", r"/admin/v2/persistent/sec/ns/t/offload", "there is no offloading: 501"),
    ("GET", r"/admin/v2/broker-stats/metrics", "metrics are at /metrics: 501"),
    ("GET", r"/admin/v3/.*|/admin/v2/worker.*", "the handlers of the worker do nothing in this test"),
    ("POST|PUT|DELETE", r"/admin/v3/.*|/admin/v2/worker.*", "the same"),
)
"""What is allowed to the same roles and then answered otherwise, with the reason."""


def rows() -> Iterator[dict[str, Any]]:
    for line in GOLDEN.read_text().splitlines():
        row = json.loads(line)
        if row["group"] not in ("audience", "basic http", "https"):  # of authentication alone
            yield row


def body_of(method: str, path: str) -> Any:
    for methods, pattern, body in BODIES:
        if method in methods.split("|") and re.fullmatch(pattern, path):
            return body
    return None


async def prepare(broker: Secured) -> None:
    """Make what the steps of each role change or delete."""
    await make_golden_world(broker)
    topics = "/admin/v2/persistent/sec/ns"
    for role in ROLES:
        for name in (f"upd-{role}", f"del-{role}"):
            await broker.superuser("PUT", f"/admin/v2/tenants/{name}", TENANT)
        await broker.superuser("PUT", f"/admin/v2/namespaces/sec/d-{role}")
        for name in ("tm", "x", "tr", "ds"):
            await broker.superuser("PUT", f"{topics}/{name}-{role}")
        for name in ("up", "xp"):
            await broker.superuser("PUT", f"{topics}/{name}-{role}/partitions", 2)
        await broker.superuser("PUT", f"{topics}/t/subscription/d-{role}")
        await broker.superuser("POST", f"/admin/v2/schemas/sec/ns/ds-{role}/schema", SCHEMA)


def differences(row: dict[str, Any], answer: httpx.Response, host: str) -> str:
    """What is different, empty if nothing is."""
    status, wanted = row["status"], row.get("body")
    if str(wanted).startswith("<html>") or (status == 401 and row.get("role") in ("none", "invalid", "expired")):
        is_page = status == 404 or answer.headers["content-type"].startswith("text/html")
        return "" if answer.status_code == status and is_page else f"{answer.status_code} {answer.text[:100]}"
    is_denied = status in (401, 403) or (status == 500 and "Tenant does not exist" in str(wanted))
    is_json = answer.headers.get("content-type") == "application/json" and answer.content
    got: Any = answer.json() if is_json and "reason" in answer.text else answer.text[:100]
    if is_denied:
        words = json.loads(json.dumps(wanted).replace("127.0.0.1:8080", host)) if wanted is not None else got
        return "" if (answer.status_code, got) == (status, words) else f"{answer.status_code} {got}, not {words}"
    if answer.status_code == status:
        return ""
    for methods, pattern, _ in NOT_DENIED:
        if row["method"] in methods.split("|") and re.fullmatch(pattern, row["path"]):
            return "" if answer.status_code not in (401, 403) else f"{answer.status_code} {got}"
    return f"{answer.status_code} {got}, not {status} {wanted}"


async def replay(broker: Secured, wanted: list[dict[str, Any]]) -> list[str]:
    host = broker.web_url.removeprefix("http://")
    found = []
    for row in wanted:
        method, path = row["method"], row["path"]
        headers = headers_of(row)
        if headers is None:
            continue
        answer = await broker.send(method, path, headers, body_of(method, path))
        role, original = row.get("role", row.get("case")), row.get("original_principal")
        who = role if original is None else f"{role} for {original}"
        difference = differences(row, answer, host)
        if (method, path, who) in DIFFERENT:
            difference = "" if difference else "is listed as different and is not"
        if difference:
            found.append(f"{method} {path} as {who}: {difference}")
    return found


def headers_of(row: dict[str, Any]) -> dict[str, str] | None:
    case, role = row.get("case"), row.get("role")
    if row["group"] in ("anonymous http", "metrics"):
        return {"no header": {}, "superuser": {"authorization": f"Bearer {token('superuser')}"}}.get(case or "")
    if row["group"] == "credentials":
        bearer = {"Bearer ok": "superuser", "no sub claim": None}
        return {"authorization": f"Bearer {token(bearer[case])}"} if case in bearer else None  # the rest is of forms
    named = {
        "none": {},
        "invalid": {"authorization": f"Bearer {token('superuser', b'another key, of thirty-two bytes')}"},
        "expired": {"authorization": f"Bearer {token('superuser', exp=1)}"},
    }
    headers = named.get(role or "", {"authorization": f"Bearer {token(role)}"})
    original = row.get("original_principal")
    return headers if original is None else {**headers, "x-original-principal": original}


async def test_each_role_is_answered_as_by_pulsar(tmp_path: Path) -> None:
    wanted = [row for row in rows() if row["group"] != "anonymous http"]
    assert Counter(row["group"] for row in wanted)["topics"] == 288
    async with secured(tmp_path) as broker:
        await prepare(broker)
        found = await replay(broker, wanted)
    assert not found, f"{len(found)} differ:\n" + "\n".join(found)


async def test_the_anonymous_role_is_answered_as_by_pulsar(tmp_path: Path) -> None:
    settings = AuthorizationSettings(is_enabled=True, super_user_roles=("superuser",))
    async with secured(tmp_path, settings, anonymous_role="anon") as broker:
        await make_golden_world(broker)
        await broker.superuser("POST", "/admin/v2/namespaces/sec/ns/permissions/anon", ["produce"])
        found = await replay(broker, [row for row in rows() if row["group"] == "anonymous http"])
    assert not found, f"{len(found)} differ:\n" + "\n".join(found)


def test_the_recording_has_all_kinds_of_paths() -> None:
    paths = {row["path"] for row in rows()}
    assert any(map(forwards, paths))
    assert any(path.startswith(PACKAGES) for path in paths)
    assert {"/admin/v2/unknown", "/ws/v2/none"} <= paths
