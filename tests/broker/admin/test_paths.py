"""Every path of Pulsar's broker is answered, if only by saying what is absent and why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.admin.app import ROUTES
from magnetar.broker.admin.forward import forwards
from magnetar.wire.topic_name import DOMAINS

from tests.broker.admin.conftest import RunningBroker

PATHS = Path(__file__).parents[2] / "golden" / "paths.txt"
"""Verb and path of everything that the classes of Pulsar 4.0.7's broker answer by their annotations."""
ABSENT = ("/transactions/",)
"""Answered by a prefix of its own."""
CLUSTER = "/admin/v2/clusters/standalone"
PACKAGE = "/admin/v3/packages/function/public/default/p"


def _plain(verb: str, path: str) -> str:
    """Return a path without the names of its parameters."""
    return f"{verb} {re.sub(r'{[^}]*}', '{}', path)}"


def test_every_path_of_pulsar_is_in_the_table_of_routes() -> None:
    ours = {
        _plain(verb, path.replace("{domain}", domain))
        for verb, path, _ in ROUTES
        for domain in (*DOMAINS, "{topic-domain}")
    }
    theirs = [line.split(" ") for line in PATHS.read_text().splitlines()]
    assert len(theirs) > 500
    absent = [
        f"{verb} {path}"
        for verb, path in theirs
        if _plain(verb, path) not in ours and not forwards(path) and not any(one in path for one in ABSENT)
    ]
    assert absent == []


@pytest.mark.parametrize(
    ("verb", "path", "status", "said"),
    [
        ("GET", f"{CLUSTER}/failureDomains", 200, "{}"),
        ("GET", "/admin/v2/clusters/nope/failureDomains", 200, "{}"),
        ("GET", f"{CLUSTER}/failureDomains/d1", 404, "Domain d1 for cluster standalone does not exist"),
        ("GET", "/admin/v2/clusters/nope/failureDomains/d", 412, "Cluster nope does not exist."),
        ("DELETE", f"{CLUSTER}/failureDomains/d1", 404, "Domain-name d1 or cluster standalone does not exist"),
        ("GET", f"{CLUSTER}/namespaceIsolationPolicies", 404, "NamespaceIsolationPolicies for cluster"),
        ("GET", f"{CLUSTER}/namespaceIsolationPolicies/p", 404, "NamespaceIsolationPolicies for cluster"),
        ("GET", "/admin/v2/clusters/nope/namespaceIsolationPolicies", 404, "Cluster nope does not exist."),
        ("GET", f"{CLUSTER}/namespaceIsolationPolicies/brokers", 200, '"namespaceRegex":[],"primary":false}]'),
        ("GET", f"{CLUSTER}/namespaceIsolationPolicies/brokers/b:80", 200, '{"brokerName":"b:80",'),
        ("DELETE", f"{CLUSTER}/namespaceIsolationPolicies/p", 204, ""),
        ("GET", f"{CLUSTER}/migrate", 404, "Cluster does not exist"),
        ("GET", "/admin/v2/bookies/all", 200, '{"bookies":[]}'),
        ("GET", "/admin/v2/bookies/racks-info", 200, "{}"),
        ("GET", "/admin/v2/bookies/racks-info/b:1", 404, "Bookie rack placement configuration not found: b:1"),
        ("DELETE", "/admin/v2/bookies/racks-info/b:1", 404, "Bookie rack placement configuration not found: b:1"),
        ("POST", "/admin/v2/bookies/racks-info/b:1", 412, "Bookie 'group' parameters is missing"),
        ("POST", "/admin/v2/bookies/racks-info/b:1?group=g", 501, "bookie rack placement is not supported"),
        ("GET", "/admin/v2/broker-stats/allocator-stats/nope", 406, "Invalid allocator name : nope"),
        ("GET", "/admin/v2/broker-stats/bookieops", 200, "{}"),
        ("GET", "/admin/v2/broker-stats/broker-resource-availability/public/default", 409, "there is no load manager"),
        ("POST", "/admin/v2/brokers/shutdown", 501, "send SIGTERM"),
        (
            "GET",
            "/admin/v2/brokers/internal-configuration",
            200,
            '{"ledgersRootPath":"/ledgers","bookkeeperMetadataServiceUri":"none: this broker stores its metadata in',
        ),
        ("GET", "/admin/v2/namespaces/standalone/antiAffinity/g", 200, "[]"),
        ("GET", "/admin/v2/namespaces/public/default/scanOffloadedLedgers", 501, "offloading is not supported"),
        ("GET", "/admin/v2/persistent/public/default/t/backlog", 501, "GET …/stats"),
        ("GET", "/admin/v2/persistent/public/default/t/s/dispatchRate", 200, ""),
        ("POST", "/admin/v2/persistent/public/default/t/s/dispatchRate", 204, ""),
        ("DELETE", "/admin/v2/persistent/public/default/t/s/dispatchRate", 204, ""),
        ("GET", "/admin/v2/resource-quotas/public/default/0x00000000_0x40000000", 200, '"memory":80.0'),
        ("GET", "/admin/v2/resource-quotas/public/default/0x00000000_0xffffffff", 412, "Expected upper boundary of"),
        ("GET", "/admin/v2/resource-quotas/public/nope/0x00000000_0x40000000", 404, "Namespace does not exist"),
        ("POST", "/admin/v2/resource-quotas/public/default/0x00000000_0x40000000", 501, "changing resource quotas"),
        ("DELETE", "/admin/v2/resource-quotas/public/default/0x00000000_0x40000000", 204, ""),
        ("DELETE", "/admin/v2/resource-quotas/public/default/0x0_0x4", 412, "Invalid bundle range: 0x0_0x4"),
        ("GET", "/admin/v2/resourcegroups", 200, "[]"),
        ("GET", "/admin/v2/resourcegroups/g", 404, "ResourceGroup does not exist"),
        ("GET", PACKAGE, 503, "Package Management Service is not enabled in the broker: packages are stored"),
        ("GET", PACKAGE.removesuffix("/p"), 503, "start magnetar worker, or magnetar standalone"),
        ("POST", f"{PACKAGE}/v1", 503, "none is running; start magnetar worker"),
        ("PUT", f"{PACKAGE}/v1/metadata", 503, "none is running; start magnetar worker"),
        ("POST", "/topics/persistent/public/default/t", 501, "publishing over HTTP is not supported"),
        ("GET", "/admin/v3/transactions/coordinators", 503, "transactionCoordinatorEnabled"),
        ("GET", "/admin/v2/brokers/version", 200, "4.0.7+magnetar."),
    ],
)  # fmt: skip
async def test_what_a_single_broker_does_not_have_says_so(
    verb: str, path: str, status: int, said: str, broker: RunningBroker
) -> None:
    await broker.http.put("/admin/v2/persistent/public/default/t")
    content = b"{}" if verb in ("PUT", "POST") else None
    answer = await broker.http.request(verb, path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert said in answer.text
    assert "\n" not in answer.text


async def test_all_policies_of_a_topic_are_removed_at_once(broker: RunningBroker) -> None:
    topic = "/admin/v2/persistent/public/default/t"
    await broker.http.put(topic)
    values: dict[str, Any] = {"compactionThreshold": 1000, "deduplicationEnabled": True}
    for name, value in values.items():
        assert (await broker.http.post(f"{topic}/{name}", json=value)).status_code == 204
        assert (await broker.http.get(f"{topic}/{name}")).json() == value
    assert (await broker.http.delete(f"{topic}/policies")).status_code == 204
    for name in values:
        assert (await broker.http.get(f"{topic}/{name}")).content == b""
    assert (await broker.http.delete(f"{topic}-other/policies")).status_code == 204
