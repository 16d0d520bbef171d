"""Properties of consumers, producers and subscriptions are limited in number and size, except those already stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.storage.cursors import names
from magnetar.errors import NotAllowed
from magnetar.wire.pulsar_api_pb2 import KeyValue, ServerError
from magnetar.wire.topic_name import parse_topic_name

from .brokers import running_broker
from .raw import Raw

TOPIC = "persistent://public/wire/properties"
LARGE = {"a": "é" * 9000}
"""18,001 bytes of UTF-8, 9,001 characters."""
MANY = {str(number): "" for number in range(names.MAX_PROPERTIES + 1)}


def pairs(properties: dict[str, str]) -> list[KeyValue]:
    return [KeyValue(key=name, value=value) for name, value in properties.items()]


def subscribe(topic: str = TOPIC, **fields: Any) -> dict[str, Any]:
    return {"topic": topic, "subscription": "s", "subType": "Shared", "consumer_id": 1, "request_id": 1} | fields


@pytest.mark.parametrize("topic", [TOPIC, TOPIC.replace("persistent", "non-persistent")])
@pytest.mark.parametrize("properties", [LARGE, MANY], ids=["large", "many"])
@pytest.mark.parametrize("durable", [True, False])
async def test_too_large_properties_are_refused(
    topic: str, properties: dict[str, str], durable: bool, tmp_path: Path
) -> None:
    async with running_broker(tmp_path, max_consumer_metadata_bytes=1 << 14) as broker:
        raw = await Raw.connected(broker.port)
        for what, kind, fields in (
            ("consumer properties", "SUBSCRIBE", subscribe(topic, metadata=pairs(properties))),
            (
                "subscription properties", "SUBSCRIBE",
                subscribe(topic, durable=durable, subscription_properties=pairs(properties)),
            ),
            (
                "producer properties", "PRODUCER",
                {"topic": topic, "producer_id": 1, "request_id": 1, "metadata": pairs(properties)},
            ),
        ):  # fmt: skip
            answer = (await raw.request(kind, **fields)).error
            assert (answer.request_id, answer.error) == (1, ServerError.NotAllowedError), what
            assert what in answer.message
            assert "use fewer" in answer.message
            assert "\n" not in answer.message
        # The same connection goes on, and the ids are free.
        assert (await raw.request("SUBSCRIBE", **subscribe(topic, durable=durable))).HasField("success")
        await raw.close()


async def test_the_size_of_consumer_properties_is_a_setting_as_in_pulsar(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        answer = (await raw.request("SUBSCRIBE", **subscribe(metadata=pairs({"a": "x" * 1024})))).error
        assert "exceed 1024 bytes (maxConsumerMetadataSize)" in answer.message
        assert (await raw.request("SUBSCRIBE", **subscribe(metadata=pairs({"a": "x" * 1023})))).HasField("success")
        await raw.close()


async def test_stored_properties_above_the_limit_survive_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("magnetar.broker.storage.topic_log.check_size", lambda *_: None)
        async with running_broker(tmp_path) as broker:
            topic = await broker.topic(parse_topic_name(TOPIC))
            await topic.create_subscription("s", "earliest", LARGE)
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        # Its client still names them, as it always did; for an existing subscription they have no effect.
        answer = await raw.request("SUBSCRIBE", **subscribe(subscription_properties=pairs(LARGE)))
        assert answer.HasField("success")
        subscription = (await broker.topic(parse_topic_name(TOPIC))).subscriptions["s"]
        assert subscription.cursor.properties == LARGE
        with pytest.raises(NotAllowed, match="subscription properties exceed 16384 bytes"):
            await subscription.set_properties(LARGE)
        await subscription.set_properties({"a": "b"})
        assert subscription.cursor.properties == {"a": "b"}
        await raw.close()
