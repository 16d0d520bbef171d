"""Commands of policies and permissions send what Pulsar's tool sends; every command of that tool is known by name."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from magnetar.cli.main import NOT_HERE, root
from magnetar.cli.pulsar_commands import COMMANDS, GROUPS

from .conftest import FakeRest, Magnetar

TOPIC = "/admin/v2/persistent/public/default/t"
NAMESPACE = "/admin/v2/namespaces/public/default"
RATE = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 2}
SETTERS: list[tuple[str, str, str, Any]] = [
    ("namespaces", "set-message-ttl N -ttl 2h", "messageTTL", 7200),
    ("namespaces", "set-subscription-expiration-time N -t 30", "subscriptionExpirationTime", 30),
    ("namespaces", "set-max-producers-per-topic N -p 4", "maxProducersPerTopic", 4),
    ("namespaces", "set-max-consumers-per-topic N -c 4", "maxConsumersPerTopic", 4),
    ("namespaces", "set-max-unacked-messages-per-consumer N -c 0", "maxUnackedMessagesPerConsumer", 0),
    ("namespaces", "set-max-subscriptions-per-topic N -m 4", "maxSubscriptionsPerTopic", 4),
    ("namespaces", "set-subscription-auth-mode N -m Prefix", "subscriptionAuthMode", "Prefix"),
    ("namespaces", "set-max-topics-per-namespace N -t 4", "maxTopicsPerNamespace", 4),
    (
        "namespaces",
        "set-auto-topic-creation N -e -t partitioned -n 3",
        "autoTopicCreation",
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
    ),
    ("namespaces", "set-auto-topic-creation N -d", "autoTopicCreation", {"allowAutoTopicCreation": False}),
    ("namespaces", "set-dispatch-rate N -md 5 -dt 2", "dispatchRate", RATE | {"relativeToPublishRate": False}),
    (
        "namespaces",
        "set-subscription-types-enabled N -t Shared,Failover",
        "subscriptionTypesEnabled",
        ["Shared", "Failover"],
    ),
    (
        "namespaces",
        "set-backlog-quota N -l 10M -lt 1h -p producer_exception -t message_age",
        "backlogQuota?message_age",
        {"limitSize": 10 << 20, "limitTime": 3600, "policy": "producer_exception"},
    ),
    (
        "namespaces",
        "set-inactive-topic-policies N -e -t 10m -m delete_when_no_subscriptions",
        "inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 600,
            "deleteWhileInactive": True,
        },
    ),
    (
        "topicPolicies",
        "set-retention T -t 3h -s 10M",
        "retention",
        {"retentionTimeInMinutes": 180, "retentionSizeInMB": 10},
    ),
    (
        "topicPolicies",
        "set-retention T -t -1 -s -1",
        "retention",
        {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    ),
    ("topicPolicies", "set-max-producers T -p 3", "maxProducers", 3),
    ("topicPolicies", "set-max-consumers-per-subscription T -c 3", "maxConsumersPerSubscription", 3),
    ("topicPolicies", "set-max-unacked-messages-per-subscription T -m 3", "maxUnackedMessagesOnSubscription", 3),
    ("topicPolicies", "set-max-subscriptions-per-topic T -s 3", "maxSubscriptionsPerTopic", 3),
    ("topicPolicies", "set-max-message-size T -m 1K", "maxMessageSize", 1024),
    (
        "topicPolicies",
        "set-publish-rate T -m 100 -b 1000",
        "publishRate",
        {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": 1000},
    ),
    (
        "topicPolicies",
        "set-subscribe-rate T -sr 5 -st 10",
        "subscribeRate",
        {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 10},
    ),
    (
        "topicPolicies",
        "set-delayed-delivery T -e -t 2s -md 1h",
        "delayedDelivery",
        {"active": True, "tickTime": 2000, "maxDeliveryDelayInMillis": 3_600_000},
    ),
    (
        "topicPolicies",
        "set-auto-subscription-creation T -d",
        "autoSubscriptionCreation",
        {"allowAutoSubscriptionCreation": False},
    ),
    ("topicPolicies", "set-replication-clusters T -c a,b", "replication", ["a", "b"]),
    ("topicPolicies", "set-dispatcher-pause-on-ack-state-persistent T", "dispatcherPauseOnAckStatePersistent", None),
    ("topics", "set-max-subscriptions T -m 3", "maxSubscriptionsPerTopic", 3),
    (
        "topics",
        "set-persistence T -e 1 -w 1 -a 1 -r 0.5",
        "persistence",
        {
            "bookkeeperEnsemble": 1,
            "bookkeeperWriteQuorum": 1,
            "bookkeeperAckQuorum": 1,
            "managedLedgerMaxMarkDeleteRate": 0.5,
        },
    ),
]


@pytest.mark.parametrize(
    ("group", "line", "path", "body"), SETTERS, ids=lambda value: value if type(value) is str else ""
)
def test_a_policy_is_sent_as_pulsar_sends_it(
    magnetar: Magnetar, rest: FakeRest, group: str, line: str, path: str, body: Any
) -> None:
    words = [{"N": "public/default", "T": "t"}.get(word, word) for word in line.split()]
    assert magnetar(group, *words).code == 0
    name, _, kind = path.partition("?")
    base = NAMESPACE if group == "namespaces" else TOPIC
    assert (rest.last.method, rest.last.path) == ("POST", f"{base}/{name}")
    assert rest.last.query == ({"backlogQuotaType": kind} if kind else {})
    assert (json.loads(rest.last.body) if rest.last.body else None) == body


def test_message_ttl_of_a_topic_goes_in_the_query(magnetar: Magnetar, rest: FakeRest) -> None:
    assert magnetar("topics", "set-message-ttl", "t", "-t", "90").code == 0
    assert (rest.last.path, rest.last.query, rest.last.body) == (f"{TOPIC}/messageTTL", {"messageTTL": "90"}, b"")


@pytest.mark.parametrize(
    ("words", "method", "path", "query"),
    [
        (("namespaces", "get-message-ttl", "public/default"), "GET", f"{NAMESPACE}/messageTTL", {}),
        (("namespaces", "get-backlog-quotas", "public/default"), "GET", f"{NAMESPACE}/backlogQuotaMap", {}),
        (("namespaces", "remove-publish-rate", "public/default"), "DELETE", f"{NAMESPACE}/publishRate", {}),
        (
            ("namespaces", "remove-backlog-quota", "public/default", "-t", "message_age"),
            "DELETE",
            f"{NAMESPACE}/backlogQuota",
            {"backlogQuotaType": "message_age"},
        ),
        (("topicPolicies", "get-backlog-quota", "t", "-ap"), "GET", f"{TOPIC}/backlogQuotaMap", {"applied": "true"}),
        (("topicPolicies", "get-max-producers", "t", "--global"), "GET", f"{TOPIC}/maxProducers", {"isGlobal": "true"}),
        (("topicPolicies", "delete", "t"), "DELETE", f"{TOPIC}/policies", {}),
        (("topics", "permissions", "t"), "GET", f"{TOPIC}/permissions", {}),
        (("topics", "revoke-permission", "t", "--role", "a/b"), "DELETE", f"{TOPIC}/permissions/a%2Fb", {}),
        (
            ("namespaces", "revoke-subscription-permission", "public/default", "-s", "s", "-r", "r"),
            "DELETE",
            f"{NAMESPACE}/permissions/s/r",
            {},
        ),
        (
            ("namespaces", "subscription-permission", "public/default"),
            "GET",
            f"{NAMESPACE}/permissions/subscription",
            {},
        ),
        (("brokers", "list-dynamic-config"), "GET", "/admin/v2/brokers/configuration", {}),
        (
            ("brokers", "delete-dynamic-config", "-c", "maxTenants"),
            "DELETE",
            "/admin/v2/brokers/configuration/maxTenants",
            {},
        ),
        (
            ("brokers", "update-dynamic-config", "-c", "maxTenants", "-v", "5"),
            "POST",
            "/admin/v2/brokers/configuration/maxTenants/5",
            {},
        ),
    ],
)
def test_a_command_asks_for_what_its_name_says(
    magnetar: Magnetar, rest: FakeRest, words: tuple[str, ...], method: str, path: str, query: dict[str, str]
) -> None:
    rest.answer(f"GET {path}", [] if path.endswith("configuration") else {})
    assert magnetar(*words).code == 0
    assert (rest.last.method, rest.last.path, rest.last.query) == (method, path, query)


def test_permissions_are_granted(magnetar: Magnetar, rest: FakeRest) -> None:
    assert magnetar("namespaces", "grant-permission", "a/b", "--role", "r", "--actions", "produce,consume").code == 0
    assert (rest.last.path, rest.last.json) == ("/admin/v2/namespaces/a/b/permissions/r", ["produce", "consume"])
    assert magnetar("namespaces", "grant-subscription-permission", "a/b", "-s", "s", "-rs", "x,y").code == 0
    assert (rest.last.path, rest.last.json) == ("/admin/v2/namespaces/a/b/permissions/subscription/s", ["x", "y"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("set-delayed-delivery t -t 2s", "use either --enable or --disable"),
        ("set-max-message-size t -m many", "invalid size 'many': expected a whole number of bytes"),
        ("set-retention t -t 3h -s 500K", "invalid size '500K': expected whole megabytes, such as 500M or 10G"),
        ("set-retention t -t 3h -s 512", "invalid size '512': expected whole megabytes, such as 500M or 10G"),
        ("set-message-ttl t -t soon", "invalid duration 'soon': expected a number"),
        ("set-backlog-quota t -p never", "never"),
    ],
)
def test_a_wrong_flag_is_a_line_and_nothing_is_sent(magnetar: Magnetar, rest: FakeRest, line: str, said: str) -> None:
    answer = magnetar("topicPolicies", *line.split())
    assert answer.code != 0
    assert said in answer.err
    assert not rest.requests


def _group(name: str) -> click.Group | None:
    command = root.get_command(click.Context(root), name)
    assert command is None or isinstance(command, click.Group)
    return command


@pytest.mark.parametrize("name", GROUPS)
def test_every_group_of_pulsar_is_here_or_refused_by_name(magnetar: Magnetar, name: str) -> None:
    if _group(name) is None:
        assert name in NOT_HERE
        assert "is not supported by this version" in magnetar(name, "list").err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_of_pulsar_is_here_or_refused_by_name(magnetar: Magnetar, name: str) -> None:
    group = _group(name)
    assert group is not None
    absent = [word for word in COMMANDS[name] if group.get_command(click.Context(group), word) is None]
    assert absent != list(COMMANDS[name])
    for word in absent:
        answer = magnetar(name, word)
        assert answer.code != 0
        assert f"`magnetar {name} {word}` is not supported by this version" in answer.err
