"""Messages that a function publishes for later, under each guarantee that publishes in a way of its own."""

from __future__ import annotations

import time

from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.runtime.interface import Runtime

from tests.support.exact import ExactSpec
from tests.support.function_topics import send_batches
from tests.support.instances import MakeSpec

DELAY_S = 0.5
CODE = f"""
import time
from datetime import timedelta

def process(text, context):
    side = context.get_user_config_value("side")
    context.publish(side, "after", message_conf={{"deliver_after": timedelta(seconds={DELAY_S})}})
    context.publish(side, "at", message_conf={{"deliver_at": int((time.time() + {DELAY_S}) * 1000)}})
    context.publish(side, "past", message_conf={{"deliver_at": 1, "partition_key": "k"}})
    context.publish(side, "now", properties={{"a": "b"}})
"""
SHARED = ConsumerConfig(type="Shared", initial_position="Earliest")


async def is_given_out_later(client: AsyncClient, topic: str, since_s: float) -> None:
    consumer = await client.subscribe(f"{topic}-side", "test", SHARED)
    came = [await consumer.receive(30) for _ in range(4)]
    passed_s = time.time() - since_s
    await consumer.close()
    assert {message.data for message in came[:2]} == {b"now", b"past"}
    assert {message.data for message in came[2:]} == {b"after", b"at"}
    assert passed_s >= DELAY_S
    by_data = {message.data: message for message in came}
    assert by_data[b"now"].properties == {"a": "b"}
    assert by_data[b"past"].key == "k"


async def test_a_message_for_later_is_given_out_later(
    client: AsyncClient, make_spec: MakeSpec, any_runtime: Runtime, topic: str
) -> None:
    instance = await any_runtime.start(make_spec(CODE, userConfig=f'{{"side": "{topic}-side"}}'))
    began_s = time.time()
    await send_batches(client, f"{topic}-in", [[b"x"]])
    await is_given_out_later(client, topic, began_s)
    await instance.stop(30)


async def test_a_message_for_later_is_given_out_later_effectively_once(
    client: AsyncClient, committing_spec: ExactSpec, any_runtime: Runtime, topic: str
) -> None:
    instance = await any_runtime.start(committing_spec(CODE, userConfig=f'{{"side": "{topic}-side"}}'))
    began_s = time.time()
    await send_batches(client, f"{topic}-in", [[b"x"]])
    await is_given_out_later(client, topic, began_s)
    await instance.stop(30)
