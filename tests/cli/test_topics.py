from __future__ import annotations

import json
import time
from typing import Any

import pytest
from magnetar.cli.topics.topics import stats_table
from magnetar.wire.batch import encode_batch
from magnetar.wire.pulsar_api_pb2 import SingleMessageMetadata

from .conftest import FakeRest, Magnetar

TOPIC = "/admin/v2/persistent/public/default/t"


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body"),
    [
        (("create", "t"), "PUT", TOPIC, b""),
        (("create-partitioned-topic", "t", "-p", "4"), "PUT", f"{TOPIC}/partitions", b"4"),
        (("update-partitioned-topic", "t", "--partitions", "5"), "POST", f"{TOPIC}/partitions", b"5"),
        (("create-missed-partitions", "t"), "POST", f"{TOPIC}/createMissedPartitions", b""),
        (("delete-partitioned-topic", "t"), "DELETE", f"{TOPIC}/partitions", b""),
        (("delete", "persistent://a/b/c"), "DELETE", "/admin/v2/persistent/a/b/c", b""),
        (("unload", "a/b/c"), "PUT", "/admin/v2/persistent/a/b/c/unload", b""),
        (("skip", "t", "-s", "sub", "-n", "3"), "POST", f"{TOPIC}/subscription/sub/skip/3", b""),
        (("skip-all", "t", "-s", "sub"), "POST", f"{TOPIC}/subscription/sub/skip_all", b""),
        (("clear-backlog", "t", "-s", "a/b"), "POST", f"{TOPIC}/subscription/a%2Fb/skip_all", b""),
        (
            ("expire-messages", "t", "-s", "sub", "-t", "2h"),
            "POST",
            f"{TOPIC}/subscription/sub/expireMessages/7200",
            b"",
        ),
        (("truncate", "t"), "DELETE", f"{TOPIC}/truncate", b""),
        (("compact", "t"), "PUT", f"{TOPIC}/compaction", b""),
        (("compaction-status", "t"), "GET", f"{TOPIC}/compaction", b""),
        (("set-deduplication", "t", "--enable"), "POST", f"{TOPIC}/deduplicationEnabled", b"true"),
        (("set-deduplication", "t", "-d"), "POST", f"{TOPIC}/deduplicationEnabled", b"false"),
        (("get-deduplication", "t"), "GET", f"{TOPIC}/deduplicationEnabled", b""),
        (("remove-deduplication", "t"), "DELETE", f"{TOPIC}/deduplicationEnabled", b""),
        (("set-compaction-threshold", "t", "--threshold", "10M"), "POST", f"{TOPIC}/compactionThreshold", b"10485760"),
        (("get-compaction-threshold", "t"), "GET", f"{TOPIC}/compactionThreshold", b""),
        (("remove-compaction-threshold", "t"), "DELETE", f"{TOPIC}/compactionThreshold", b""),
        (
            ("expire-messages-all-subscriptions", "t", "-t", "1m"),
            "POST",
            f"{TOPIC}/all_subscription/expireMessages/60",
            b"",
        ),
        (("unsubscribe", "t", "-s", "sub"), "DELETE", f"{TOPIC}/subscription/sub", b""),
        (("create-subscription", "t", "-s", "sub"), "PUT", f"{TOPIC}/subscription/sub", b""),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_command_asks_for_what_its_name_says(
    magnetar: Magnetar, rest: FakeRest, arguments: tuple[str, ...], method: str, path: str, body: bytes
) -> None:
    assert magnetar("topics", *arguments).code == 0
    assert (rest.last.method, rest.last.path, rest.last.body) == (method, path, body)


def test_policies_of_a_topic_have_a_group_of_their_own(magnetar: Magnetar, rest: FakeRest) -> None:
    assert magnetar("topicPolicies", "set-deduplication", "t", "-e").code == 0
    assert (rest.last.method, rest.last.path, rest.last.body) == ("POST", f"{TOPIC}/deduplicationEnabled", b"true")
    assert magnetar("topicPolicies", "get-deduplication", "t", "-ap").code == 0
    assert rest.last.path.startswith(f"{TOPIC}/deduplicationEnabled")


def test_policies_of_a_namespace_are_switched_by_name(magnetar: Magnetar, rest: FakeRest) -> None:
    path = "/admin/v2/namespaces/a/b/deduplication"
    for arguments, method, body in (
        (("set-deduplication", "a/b", "--enable"), "POST", b"true"),
        (("set-deduplication", "a/b", "--disable"), "POST", b"false"),
        (("get-deduplication", "a/b"), "GET", b""),
        (("remove-deduplication", "a/b"), "DELETE", b""),
    ):
        assert magnetar("namespaces", *arguments).code == 0
        assert (rest.last.method, rest.last.path, rest.last.body) == (method, path, body)


def test_compaction_threshold_of_a_namespace_takes_sizes(magnetar: Magnetar, rest: FakeRest) -> None:
    path = "/admin/v2/namespaces/a/b/compactionThreshold"
    for size, body in (
        ("0", b"0"),
        ("100000", b"100000"),
        ("2k", b"2048"),
        ("64MiB", b"67108864"),
        ("64mb", b"67108864"),
        ("1G", b"1073741824"),
        ("3T", b"3298534883328"),
    ):
        assert magnetar("namespaces", "set-compaction-threshold", "a/b", "-t", size).code == 0
        assert (rest.last.method, rest.last.path, rest.last.body) == ("PUT", path, body)
    assert magnetar("namespaces", "get-compaction-threshold", "a/b").code == 0
    assert magnetar("namespaces", "remove-compaction-threshold", "a/b").code == 0
    assert (rest.last.method, rest.last.path) == ("DELETE", path)
    for size in ("-1", "1.5M", "M", "10X", ""):
        failed = magnetar("namespaces", "set-compaction-threshold", "a/b", f"--threshold={size}")
        assert failed.code != 0
        assert (
            f"invalid size {size!r}: expected a whole number of bytes, or one with K, M, G or T, such as 64M"
            in failed.err
        )


def test_subscription_starts_at_a_message_id(magnetar: Magnetar, rest: FakeRest) -> None:
    assert magnetar("topics", "create-subscription", "t", "-s", "sub", "-m", "12:3").code == 0
    assert rest.last.json == {"ledgerId": 12, "entryId": 3, "partitionIndex": -1}
    assert magnetar("subscriptions", "create", "t", "-s", "sub", "-m", "earliest").code == 0
    assert rest.last.json == {"ledgerId": -1, "entryId": -1}


def test_reset_cursor_goes_back_in_time(magnetar: Magnetar, rest: FakeRest) -> None:
    before_ms = int(time.time() * 1000)
    assert magnetar("topics", "reset-cursor", "t", "-s", "sub", "-t", "10m").code == 0
    path, _, millis = rest.last.path.rpartition("/")
    assert path == f"{TOPIC}/subscription/sub/resetcursor"
    assert 0 <= int(millis) - (before_ms - 600_000) < 60_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("reset-cursor", "t", "-s", "sub"), ("--time", "--message-id")),
        (("reset-cursor", "t", "-s", "sub", "-t", "soon"), ("soon", "10m")),
        (("reset-cursor", "t", "-s", "sub", "-m", "x"), ("'x'", "ledger:entry")),
        (("skip", "t", "-n", "1"), ("--subscription",)),
        (("set-deduplication", "t"), ("--enable", "--disable")),
        (("set-deduplication", "t", "-e", "-d"), ("--enable", "--disable")),
        (("create", "a/b"), ("a/b", "2 parts")),
        (("list", "public"), ("public", "tenant/namespace")),
        (("partition",), ("unknown command partition",)),
        (("offload", "t"), ("`magnetar topics offload` is not supported by this version",)),
        (("examine-messages", "t", "-i", "middle"), ("middle", "earliest or latest")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_call_is_one_line(
    magnetar: Magnetar, rest: FakeRest, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    result = magnetar("topics", *arguments)
    assert result.code != 0
    assert len(result.err.splitlines()) == 1
    assert all(word in result.err for word in words), result.err
    assert not rest.requests


def test_list_prints_a_name_a_line(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer("GET /admin/v2/persistent/public/default", ["persistent://public/default/t"])
    assert magnetar("topics", "list", "public/default").out == "persistent://public/default/t\n"


def peeked(payload: bytes, **headers: str) -> tuple[bytes, dict[str, str]]:
    return payload, {"X-Pulsar-Message-ID": "3:0", **headers}


def test_peek_splits_a_batch_and_stops_at_the_end(magnetar: Magnetar, rest: FakeRest) -> None:
    batch = encode_batch([(SingleMessageMetadata(partition_key="k"), b"one"), (None, b"two")])
    path = f"GET {TOPIC}/subscription/sub/position"
    content, headers = peeked(batch, **{"X-Pulsar-num-batch-message": "2"})
    rest.answer(f"{path}/1", content, headers=headers)
    content, headers = peeked(b"three", **{"X-Pulsar-PROPERTY": "{}"})
    rest.answer(f"{path}/2", content, headers=headers)
    rest.answer(f"{path}/3", {"reason": "Message not found"}, 404)
    found: list[dict[str, Any]] = json.loads(
        magnetar("-o", "json", "topics", "peek-messages", "t", "-s", "sub", "-n", "9").out
    )
    assert [message["content"] for message in found] == ["one", "two", "three"]
    assert [message["messageId"] for message in found] == ["3:0:0", "3:0:1", "3:0"]
    assert [message["key"] for message in found] == ["k", None, None]


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body"),
    [
        (("namespaces", "create", "a/b"), "PUT", "/admin/v2/namespaces/a/b", None),
        (("namespaces", "delete", "a/b"), "DELETE", "/admin/v2/namespaces/a/b", None),
        (
            ("namespaces", "set-retention", "a/b", "-t", "3h", "-s", "1GB"), "POST",
            "/admin/v2/namespaces/a/b/retention",
            {"retentionTimeInMinutes": 180, "retentionSizeInMB": 1024},
        ),
        (
            ("tenants", "create", "x", "-r", "a,b", "-c", "standalone"), "PUT", "/admin/v2/tenants/x",
            {"adminRoles": ["a", "b"], "allowedClusters": ["standalone"]},
        ),
        (("clusters", "create", "c", "--url", "http://h:1"), "PUT", "/admin/v2/clusters/c", {"serviceUrl": "http://h:1"}),
        (("functions-worker", "rebalance"), "PUT", "/admin/v2/worker/rebalance", None),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_other_groups_ask_for_what_their_commands_say(
    magnetar: Magnetar, rest: FakeRest, arguments: tuple[str, ...], method: str, path: str, body: object
) -> None:
    assert magnetar(*arguments).code == 0
    assert (rest.last.method, rest.last.path) == (method, path)
    assert (rest.last.json if rest.last.body else None) == body


def test_workers_are_shown_one_by_one_or_as_an_array(magnetar: Magnetar, rest: FakeRest) -> None:
    workers = [{"workerId": "w", "workerHostname": "h", "port": 1}]
    rest.answer("GET /admin/v2/worker/cluster", workers)
    assert json.loads(magnetar("functions-worker", "get-cluster").out) == workers[0]
    assert json.loads(magnetar("functions-worker", "get-cluster", "-o", "json").out) == workers
    rest.answer("GET /admin/v2/worker/assignments", {"w": ["public/default/f:0"]})
    assert magnetar("functions-worker", "get-function-assignments").out == "w    [public/default/f:0]\n"


def test_drain_waits_for_the_end_and_names_what_went_wrong(magnetar: Magnetar, rest: FakeRest) -> None:
    drain = ("functions-worker", "drain", "--worker-id", "w2")
    rest.answer("GET /admin/v2/worker/leader/drain", {"status": "SUCCESS", "lastError": ""})
    assert magnetar(*drain).out == "w2 no longer runs any instances\n"
    assert [(asked.method, asked.query) for asked in rest.requests] == [
        ("PUT", {"workerId": "w2"}), ("GET", {"workerId": "w2"}),
    ]  # fmt: skip
    rest.answer("GET /admin/v2/worker/leader/drain", {"status": "ERROR", "lastError": "w2 has gone"})
    assert "draining w2 failed: w2 has gone" in magnetar(*drain).err


def test_table_of_a_topic_tells_its_subscriptions_apart() -> None:
    topic = {"msgInCounter": 5, "msgOutCounter": 3, "backlogSize": 70, "storageSize": 1234, "publishers": [{}]}
    subscription = {
        "type": "Failover",
        "msgOutCounter": 3,
        "msgBacklog": 2,
        "consumers": [{}, {}],
        "activeConsumerName": "c",
    }
    table = stats_table({**topic, "subscriptions": {"s": subscription}})
    assert table.title == "1,234 bytes stored, 70 bytes unacknowledged"
    assert [tuple(row) for row in table.rows] == [("topic", "", 5, 3, "", 1, ""), ("s", "Failover", "", 3, 2, 2, "c")]
    assert all(len(row) == len(table.columns) for row in table.rows)
