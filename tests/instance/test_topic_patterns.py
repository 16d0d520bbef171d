"""Functions whose input is a pattern: topics join while it runs and leave, under each guarantee that reads patterns."""

from __future__ import annotations

from collections.abc import Iterable

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.errors import InvalidConfig
from magnetar.instance.topic_patterns import patterns_of, topic_pattern
from magnetar.runtime.interface import Runtime
from magnetar.wire import functions_pb2 as records

from tests.instance.test_pipeline_e2e import Start, runtime, start
from tests.support.eventually import until
from tests.support.exact import all_messages
from tests.support.function_topics import no_backlog, send_batches
from tests.support.instances import MakeSpec
from tests.support.servers import Server

__all__ = ["runtime", "start"]  # the fixtures

SHOUT = "def process(text, context):\n    return f'{text} {context.get_current_record().value}'"


def reading(topic: str, **source: object) -> records.SourceSpec:
    """A source that reads the topics whose names begin so, and end with a letter."""
    pattern = f"{topic}-in-[a-z]"
    return records.SourceSpec(inputSpecs={pattern: records.ConsumerSpec(isRegexPattern=True)}, **source)  # type: ignore[arg-type]


async def has_made(client: AsyncClient, topic: str, words: Iterable[str]) -> None:
    expected = sorted(f"{word} {word}".encode() for word in words)

    async def has() -> bool:
        return sorted(await all_messages(client, f"{topic}-out")) == expected

    await until(has)


@pytest.mark.parametrize("kind", [records.SHARED, records.FAILOVER])
async def test_topics_join_while_it_runs_and_leave_when_they_are_deleted(
    server: Server, client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str, kind: int
) -> None:
    await send_batches(client, f"{topic}-in-a", [[b"a1"]])
    await send_batches(client, f"{topic}-in-long", [[b"never"]])
    instance = await any_runtime.start(make_spec(SHOUT, source=reading(topic, subscriptionType=kind)))
    await has_made(client, topic, ["a1"])
    await send_batches(client, f"{topic}-in-b", [[b"b1"]])  # read from its beginning, whenever it is seen
    await has_made(client, topic, ["a1", "b1"])
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        path = "/admin/v2/" + f"{topic}-in-a".replace("://", "/")
        (await http.delete(path, params={"force": "true"})).raise_for_status()
    await send_batches(client, f"{topic}-in-b", [[b"b2"]])
    await has_made(client, topic, ["a1", "b1", "b2"])
    await send_batches(client, f"{topic}-in-a", [[b"a2"]])  # another one of that name
    await has_made(client, topic, ["a1", "b1", "b2", "a2"])
    await no_backlog(server, f"{topic}-in-b")
    status = await instance.status()
    assert (status.running, status.failureException, status.numUserExceptions) == (True, "", 0)
    await instance.stop(30)


@pytest.mark.parametrize("guarantee", [records.ATMOST_ONCE, records.MANUAL])
async def test_each_guarantee_acknowledges_what_a_pattern_takes(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, guarantee: int
) -> None:
    code = SHOUT
    if guarantee == records.MANUAL:
        code = (
            "def process(text, context):\n    context.ack(context.get_message_id(),"
            " context.get_current_message_topic_name())\n    return f'{text} {text}'"
        )
    for name in "ab":
        await send_batches(client, f"{topic}-in-{name}", [[f"{name}1".encode(), f"{name}2".encode()]])
    await start(make_spec(code, source=reading(topic), processingGuarantees=guarantee))
    await has_made(client, topic, ["a1", "a2", "b1", "b2"])
    for name in "ab":
        await no_backlog(server, f"{topic}-in-{name}")


async def test_a_serde_reads_all_topics_of_a_pattern(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = (
        "class Turned:\n    def serialize(self, x): return x[::-1]\n    def deserialize(self, x): return x[::-1]\n"
        "def process(data):\n    return data.decode() + ' ' + data.decode()\n"
    )
    source = reading(topic)
    source.inputSpecs[f"{topic}-in-[a-z]"].serdeClassName = "user_code.Turned"
    await send_batches(client, f"{topic}-in-a", [[b"1a"]])
    await start(make_spec(code, source=source))
    await has_made(client, topic, ["a1"])
    await send_batches(client, f"{topic}-in-b", [[b"1b"]])
    await has_made(client, topic, ["a1", "b1"])


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"sink": {"topic": "persistent://t/n/in-out"}}, "matches persistent://t/n/in-out, the output of the function"),
        ({"logTopic": "persistent://t/n/in-log"}, "matches persistent://t/n/in-log, the logTopic of the function"),
    ],
)
def test_a_pattern_that_takes_what_the_function_writes_is_refused(details: dict[str, object], reason: str) -> None:
    function = records.FunctionDetails(**details)  # type: ignore[arg-type]
    function.source.inputSpecs["persistent://t/n/in-.*"].isRegexPattern = True
    with pytest.raises(InvalidConfig) as caught:
        patterns_of(function)
    assert reason in str(caught.value)
    function.sink.topic, function.logTopic = "persistent://t/n/out", "persistent://other/n/in-log"
    assert list(patterns_of(function)) == ["persistent://t/n/in-.*"]


def test_a_pattern_is_matched_in_bounded_time() -> None:
    pattern = topic_pattern("public/default/(a+)+")
    assert not pattern.takes("persistent://public/default/" + "a" * 900 + "b")
    assert pattern.takes("persistent://public/default/aaaa-partition-3")
