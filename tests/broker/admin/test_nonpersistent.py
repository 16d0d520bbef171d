"""Paths of non-persistent topics beyond what was recorded of an Apache Pulsar."""

from __future__ import annotations

from itertools import pairwise

from magnetar.broker.policies.policies import bundle_of
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/non-persistent/public/default"
BOUNDARIES = ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]


async def test_partitions_are_added_and_go(broker: RunningBroker) -> None:
    http = broker.http
    assert (await http.put(f"{TOPICS}/p/partitions", json=1)).status_code == 204
    assert (await http.post(f"{TOPICS}/p/partitions", json=3)).status_code == 204
    names = [f"non-persistent://public/default/p-partition-{index}" for index in range(3)]
    assert (await http.get(TOPICS)).json() == names
    stats = (await http.get(f"{TOPICS}/p/partitioned-stats")).json()
    assert (sorted(stats["partitions"]), stats["msgDropRate"]) == (names, 0.0)
    internal = (await http.get(f"{TOPICS}/p/partitioned-internalStats")).json()
    assert sorted(internal["partitions"]) == names
    assert (await http.put(f"{TOPICS}/p/unload")).status_code == 204
    assert (await http.get(TOPICS)).json() == []  # they are there while they are loaded
    assert (await http.get(f"{TOPICS}/p-partition-2/stats")).json()["msgInCounter"] == 0  # and come back when asked for
    assert (await http.get(TOPICS)).json() == names[2:]
    assert (await http.delete(f"{TOPICS}/p/partitions")).status_code == 204
    assert (await http.get(f"{TOPICS}/p/partitions")).status_code == 404
    assert (await http.get(TOPICS)).json() == []


async def test_lists_tell_the_domains_apart(broker: RunningBroker) -> None:
    http = broker.http
    await http.put(f"{TOPICS}/t")
    await http.put("/admin/v2/persistent/public/default/t")
    stored, passing = "persistent://public/default/t", "non-persistent://public/default/t"
    wanted = {"PERSISTENT": [stored], "NON_PERSISTENT": [passing], "ALL": [stored, passing]}
    for mode, names in wanted.items():
        assert (await http.get(f"{NAMESPACE}/topics?mode={mode}")).json() == names
    assert (await http.get(f"{NAMESPACE}/topics")).json() == [stored]
    bundle = bundle_of(BOUNDARIES, str(parse_topic_name(passing)))
    assert (await http.get(f"{TOPICS}/{bundle}")).json() == [passing]
    other = next(f"{low}_{high}" for low, high in pairwise(BOUNDARIES) if f"{low}_{high}" != bundle)
    assert (await http.get(f"{TOPICS}/{other}")).json() == []
    assert (await http.delete(NAMESPACE)).status_code == 409
    assert (await http.put(f"{NAMESPACE}/unload")).status_code == 204
    assert (await http.get(f"{NAMESPACE}/topics?mode=ALL")).json() == [stored]


async def test_what_has_no_positions_is_refused(broker: RunningBroker) -> None:
    http = broker.http
    await http.put(f"{TOPICS}/t")
    for verb, path, body in (
        ("POST", "terminate", None),
        ("PUT", "compaction", None),
        ("GET", "internal-info", None),
        ("POST", "subscription/s/skip/1", None),
        ("POST", "subscription/s/skip_all", None),
        ("POST", "subscription/s/resetcursor", {"ledgerId": 0, "entryId": 0}),
        ("GET", "ledger/0/entry/0", None),
    ):
        answer = await http.request(verb, f"{TOPICS}/t/{path}", json=body)
        assert (path, answer.status_code) == (path, 406)
        assert answer.json()["reason"] == "Need to provide a persistent topic name"
    policy = await http.post(f"{TOPICS}/t/deduplicationEnabled", json=True)
    assert (policy.status_code, policy.json()["reason"]) == (404, "Topic non-persistent://public/default/t not found")
    metrics = (await http.get("/metrics", follow_redirects=True)).text
    assert 'topic="non-persistent://public/default/t"' in metrics
