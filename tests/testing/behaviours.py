"""Functions that must behave identically in a `FunctionTest` and on a worker."""

from __future__ import annotations

import json
from typing import Any

from magnetar import Context, Function


def record(text: str, context: Context) -> str:
    one = context.get_current_record()
    again = json.dumps([one.value, one.topic, one.partition, one.key, dict(one.properties), one.redelivery_count])
    return f"{text} {again} {one.message_id == context.get_message_id()}"


def names(text: str, context: Context) -> str:
    return json.dumps([
        text, context.get_current_message_topic_name(), context.get_input_topics(), context.get_output_topic(),
        context.get_message_partition_index(), context.get_num_instances(), context.get_message_sequence_id(),
        context.get_user_config_value("limit"), context.get_function_name(), context.get_partition_key(),
    ])  # fmt: skip


def acknowledges(text: str, context: Context) -> str:
    if text != "b":
        context.ack(context.get_message_id(), context.get_current_message_topic_name())
    return text


def acknowledges_by_record(text: str, context: Context) -> str:
    context.get_current_record().ack()
    return text


def pauses(text: str, context: Context) -> str:
    if text == "b":
        context.pause(context.get_current_message_topic_name())
    return text


class Seeks(Function):
    """Seek to the first message once."""

    def __init__(self) -> None:
        self.first: Any = None
        self.is_back = False

    def process(self, text: str, context: Context) -> str:
        self.first = self.first or context.get_message_id()
        if text == "c" and not self.is_back:
            self.is_back = True
            context.seek(context.get_current_message_topic_name(), 0, self.first)
        return text


def publishes(text: str, context: Context) -> None:
    context.publish(context.get_output_topic(), text.upper(), properties={"by": "publish"})
    context.new_output_message().value(f"{text}!").key("k").send()


async def is_async(text: str, context: Context) -> str:
    return f"{text} {context.get_current_message_topic_name()} {context.get_current_record().key}"
