"""Messages read over REST: how large one may become when it is decompressed."""

from __future__ import annotations

import pytest
from magnetar.broker.admin.topics.messages import MAX_UNCOMPRESSED_BYTES
from magnetar.wire.compression import NAMES, compress

from tests.broker.admin.conftest import RunningBroker
from tests.broker.raw import Raw

TOPIC = "persistent://public/default/packed"
PATHS = ("examinemessage?initialPosition=earliest", "subscription/s/position/1")


async def publish(broker: RunningBroker, body: bytes, kind: str, claimed_bytes: int) -> None:
    path = "/admin/v2/persistent/public/default/packed"
    await broker.http.put(path)
    await broker.http.put(f"{path}/subscription/s")
    raw = await Raw.connected(broker.service.port)
    await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1)
    raw.send_message(body, metadata={"compression": NAMES[kind], "uncompressed_size": claimed_bytes}, num_messages=1)
    assert (await raw.receive()).command.HasField("send_receipt")
    await raw.close()


@pytest.mark.parametrize("kind", ["LZ4", "ZSTD", "ZLIB", "SNAPPY"])
@pytest.mark.parametrize("path", PATHS)
async def test_message_larger_than_a_frame_is_decompressed(broker: RunningBroker, path: str, kind: str) -> None:
    body = b"0123456789abcdef" * (6 * 65536)  # 6 MiB
    await publish(broker, compress(NAMES[kind], body), kind, len(body))
    answer = await broker.http.get(f"/admin/v2/persistent/public/default/packed/{path}")
    assert (answer.status_code, answer.content == body) == (200, True)


@pytest.mark.parametrize("kind", ["LZ4", "ZSTD", "ZLIB", "SNAPPY"])
@pytest.mark.parametrize("path", PATHS)
async def test_message_that_claims_a_gigabyte_is_refused(broker: RunningBroker, path: str, kind: str) -> None:
    await publish(broker, b"x" * 100, kind, 1 << 30)
    answer = await broker.http.get(f"/admin/v2/persistent/public/default/packed/{path}")
    assert answer.status_code == 500
    expected = f"uncompressed size of {1 << 30} bytes exceeds the limit of {MAX_UNCOMPRESSED_BYTES}"
    assert answer.json()["reason"].endswith(expected)
