"""Every command that a real Pulsar answered to each role is answered so by our broker, refusals word by word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from magnetar.security.authorization.settings import AuthorizationSettings
from magnetar.wire import pulsar_api_pb2 as pb

from tests.broker.raw import Raw
from tests.security.secured import SETTINGS, Secured, make_golden_world, secured

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent.parent / "golden" / "auth" / "client-matrix.jsonl"
TOPIC = "persistent://sec/ns/t"
SCHEMA: dict[str, Any] = {"name": "t", "schema_data": b"", "type": pb.Schema.String}
GRANTS = "/admin/v2/namespaces/sec/ns/permissions"


def rows(group: str) -> Iterator[dict[str, Any]]:
    for line in GOLDEN.read_text().splitlines():
        row = json.loads(line)
        if row["view"] == "wire" and row["group"] == group:
            yield row


def request_of(command: str, role: str) -> tuple[str, dict[str, Any]]:
    """The command that a row is about, by its words."""
    kind, _, what = command.partition(" ")
    namespace = "sec/missing" if "missing namespace" in what else "nosuch/ns" if "missing tenant" in what else "sec/ns"
    topic = f"persistent://{namespace}/t"
    if what.startswith("missing topic"):
        topic = "persistent://sec/ns/none"
    word = role.replace(" ", "-").replace("(", "").replace(")", "").replace(",", "")
    fields: dict[str, Any]
    match kind:
        case "LOOKUP":
            fields = {"topic": topic}
        case "PARTITIONED_METADATA":
            fields = {"topic": topic, "metadata_auto_creation_enabled": not what}
        case "PRODUCER":
            new = f"persistent://sec/ns/auto-{word}" if what == "new topic" else topic
            fields = {"topic": new, "producer_id": 1}
            if what.startswith("with"):
                fields["initial_subscription_name"] = f"initial-{word}"
        case "SUBSCRIBE":
            limited = "limited" in what
            name = "lim" if limited else "s" if what.startswith("existing") else f"sub-{word}"
            fields = {"topic": topic, "subscription": name, "subType": 1, "consumer_id": 1}
            if what == "reader":
                fields["subscription"] = f"reader-{word}"
                fields |= {"durable": False, "start_message_id": pb.MessageIdData(ledgerId=1, entryId=1)}
        case "GET_LAST_MESSAGE_ID":
            fields = {"consumer_id": 99}
        case "GET_TOPICS_OF_NAMESPACE":
            fields = {"namespace": namespace}
        case "WATCH_TOPIC_LIST":
            fields = {"watcher_id": 1, "namespace": namespace, "topics_pattern": "persistent://sec/ns/.*"}
        case "GET_SCHEMA":
            fields = {"topic": topic}
        case _:
            fields = {"topic": topic, "schema": pb.Schema(**SCHEMA)}
    return kind, fields


async def ask(raw: Raw, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Send a command and return what matters of its answer."""
    raw.send(kind, request_id=1, **fields)
    answer = (await raw.receive()).command
    (_, message), *_ = [(f.name, value) for f, value in answer.ListFields() if f.name != "type"]
    found = MessageToDict(message, preserving_proto_field_name=True)
    error = found.get("error", found.get("error_code"))
    return {
        "type": pb.BaseCommand.Type.Name(answer.type),
        "error": error,
        "message": found.get("message", found.get("error_message", "")) if error else "",
    }


def wanted(answer: dict[str, Any]) -> dict[str, Any]:
    error = answer.get("error")
    return {"type": answer["type"], "error": error, "message": answer.get("message", "") if error else ""}


def roles_of(text: str) -> tuple[str, str]:
    """Role and original role of a row, by its words."""
    role, _, original = text.partition(" for ")
    return role.partition(" ")[0], original


async def test_each_role_is_answered_as_by_pulsar(tmp_path: Path) -> None:
    found = []
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        await broker.superuser("POST", f"{GRANTS}/subscription/lim", ["g1"])
        checked = 0
        for row in rows("command"):
            if "connect" in row["answer"]:
                continue  # of authentication alone
            if row["role"].startswith("proxy (granted"):
                await broker.superuser("POST", f"{GRANTS}/proxy", ["produce", "consume"])
            raw = await broker.connect(*roles_of(row["role"]))
            got = await ask(raw, *request_of(row["command"], row["role"]))
            if row.get("connection") == "stays open":
                raw.send("PING")
                assert (await raw.receive()).command.HasField("pong")
            await raw.close()
            checked += 1
            if got != wanted(row["answer"]):
                found.append(f"{row['command']} as {row['role']}: {got}, not {wanted(row['answer'])}")
    assert checked > 150
    assert not found, f"{len(found)} differ:\n" + "\n".join(found)


async def expect(broker: Secured, role: str, kind: str, is_allowed: bool, **fields: Any) -> str:
    raw = await broker.connect(role)
    got = await ask(raw, kind, {"topic": TOPIC, **fields})
    await raw.close()
    assert (got["error"] is None) == is_allowed, (role, kind, fields, got)
    return str(got["message"])


def subscription(name: str, consumer_id: int = 1) -> dict[str, Any]:
    return {"subscription": name, "subType": 1, "consumer_id": consumer_id}


async def test_grants_on_topics_subscriptions_and_patterns_count_as_in_pulsar(tmp_path: Path) -> None:
    settings = AuthorizationSettings(
        is_enabled=True, super_user_roles=("superuser",), proxy_roles=SETTINGS.proxy_roles, allows_wildcards=True
    )
    async with secured(tmp_path, settings) as broker:
        await make_golden_world(broker)
        topics = "/admin/v2/persistent/sec/ns"
        await broker.superuser("PUT", f"{topics}/t2")
        for topic in ("t2", "p"):
            await broker.superuser("POST", f"{topics}/{topic}/permissions/stranger", ["consume"])

        # A grant on a topic is one on that topic alone, and on all of its partitions.
        for local, is_allowed in (("t2", True), ("t", False), ("p-partition-1", True)):
            await expect(
                broker, "stranger", "SUBSCRIBE", is_allowed, topic=f"persistent://sec/ns/{local}", **subscription("x")
            )
            await expect(broker, "stranger", "LOOKUP", is_allowed, topic=f"persistent://sec/ns/{local}")
        raw = await broker.connect("stranger")
        assert (await ask(raw, "GET_TOPICS_OF_NAMESPACE", {"namespace": "sec/ns"}))["error"] == "AuthorizationError"
        await raw.close()
        shown = (await broker.call("superuser", "GET", f"{topics}/p-partition-1/permissions")).json()
        assert "stranger" not in shown

        # A pattern counts as the names that it fits.
        await broker.superuser("POST", f"{GRANTS}/fun*", ["consume"])
        await expect(broker, "functions", "SUBSCRIBE", True, **subscription("x"))
        await expect(broker, "stranger", "SUBSCRIBE", False, **subscription("x"))

        # Who is not listed for a subscription may not use it, whatever it may consume.
        await broker.superuser("POST", f"{GRANTS}/subscription/lim", ["g1", "g2"])
        await expect(broker, "consumer", "SUBSCRIBE", False, **subscription("lim"))
        await expect(broker, "tenantadmin", "SUBSCRIBE", True, **subscription("lim"))
        skipped = await broker.call("consumer", "POST", f"{topics}/t/subscription/lim/skip_all")
        assert (skipped.status_code, skipped.json()["reason"]) == (
            401, "Unauthorized to validateTopicOperation for operation [SKIP] on topic [persistent://sec/ns/t]",
        )  # fmt: skip
        await broker.superuser("POST", f"{GRANTS}/subscription/lim", ["consumer"])
        await expect(broker, "consumer", "SUBSCRIBE", True, **subscription("lim"))


async def test_the_prefix_of_subscriptions_is_asked_for_as_in_pulsar(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        await broker.superuser("POST", "/admin/v2/namespaces/sec/ns/subscriptionAuthMode", "Prefix")
        message = await expect(broker, "consumer", "SUBSCRIBE", False, **subscription("other"))
        (row,) = [row for row in rows("grants") if row["case"] == "SUBSCRIBE other by consumer"]
        assert message == row["answer"]["message"]
        await expect(broker, "consumer", "SUBSCRIBE", True, **subscription("consumer-1"))
        await expect(broker, "tenantadmin", "SUBSCRIBE", True, **subscription("other"))
        answer = await broker.call("consumer", "PUT", "/admin/v2/persistent/sec/ns/t/subscription/zzz")
        assert answer.status_code == 500
        assert "needs to be prefixed by the authentication role, like consumer-xxxx" in answer.json()["reason"]


async def test_a_later_grant_replaces_the_one_before(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        await broker.superuser("POST", f"{GRANTS}/consumer", ["produce"])
        await expect(broker, "consumer", "SUBSCRIBE", False, **subscription("x"))
        await expect(broker, "consumer", "PRODUCER", True, producer_id=1)


async def test_what_was_created_while_it_was_allowed_goes_on(tmp_path: Path) -> None:
    async with secured(tmp_path) as broker:
        await make_golden_world(broker)
        raw = await broker.connect("producer")
        assert (await ask(raw, "PRODUCER", {"topic": TOPIC, "producer_id": 1}))["error"] is None
        await broker.superuser("DELETE", f"{GRANTS}/producer")
        raw.send_message(b"x")
        assert (await raw.receive()).command.HasField("send_receipt")
        await raw.close()
        await expect(broker, "producer", "PRODUCER", False, producer_id=1)
