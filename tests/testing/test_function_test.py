"""Functions under test: on the broker in memory, by a clock that is moved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from magnetar import Context, Function
from magnetar.errors import InvalidConfig
from magnetar.testing import FunctionFailed, FunctionTest, NoOutput


def shout(text: str) -> str:
    return f"{text}!"


class Counting(Function):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, input: Any, context: Context) -> str:  # noqa: A002  the name is Pulsar's
        self.seen += 1
        context.incr_counter(str(input), 1)
        return f"{input} {context.get_counter(str(input))} {context.get_user_config_value('unit')}"


class Flaky:
    """Fails as often as it is told to."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def process(self, text: str) -> str:
        if self.left:
            self.left -= 1
            raise ValueError(f"cannot take {text}")
        return text


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "ATMOST_ONCE", "EFFECTIVELY_ONCE"])
def test_an_output_comes_of_a_message(guarantee: str) -> None:
    with FunctionTest(shout, inputs="words", output="shouts", guarantee=guarantee) as f:
        f.send("hello", key="k")
        assert f.output() == "hello!"
        assert f.backlog == 0
        assert f.outputs() == []


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_state_is_kept_over_a_restart_and_the_functions_memory_is_not(guarantee: str) -> None:
    with FunctionTest(Counting, user_config={"unit": "times"}, guarantee=guarantee) as f:
        f.state["hello"] = 4
        f.send("hello")
        assert f.output() == "hello 5 times"
        f.restart()
        f.send("hello")
        assert f.output() == "hello 6 times"
        assert f.state["hello"] == 6
        assert "goodbye" not in f.state
    with FunctionTest(Counting, user_config={"unit": "times"}) as f:
        assert "hello" not in f.state


def test_a_failure_is_the_tests_with_its_traceback() -> None:
    with FunctionTest(Flaky(1)) as f:
        f.send("it")
        with pytest.raises(FunctionFailed, match=r"in process\n.*raise ValueError") as raised:
            f.output()
    assert "cannot take it" in str(raised.value)


def test_a_failure_that_nobody_looked_at_fails_the_test_at_its_end() -> None:
    function = FunctionTest(Flaky(1), output=None)
    function.__enter__().send("it")
    with pytest.raises(FunctionFailed, match="cannot take it"):
        function.__exit__(None, None, None)


@pytest.mark.slow
def test_what_failed_comes_again_when_the_clock_says_so() -> None:
    began_s = time.monotonic()
    with FunctionTest(Flaky(2)) as f:
        f.send("it")
        f.send("more")
        assert len(f.failures) == 2
        assert f.backlog == 2
        f.advance(59)
        assert f.backlog == 2
        f.advance(2)
        assert sorted(f.outputs()) == ["it", "more"]
        assert f.backlog == 0
    assert time.monotonic() - began_s < 10


@pytest.mark.slow
def test_a_delayed_message_waits_for_the_clock() -> None:
    with FunctionTest(shout) as f:
        before_s = f.time()
        f.send("later", deliver_after=timedelta(hours=2))
        f.advance(7100)
        assert f.outputs() == []
        f.advance(200)
        assert f.output() == "later!"
        assert 7300 < f.time() - before_s < 7330


@dataclass
class Order:
    name: str
    count: int


def more(order: Order) -> Order:
    return Order(order.name, order.count + 1)


async def later(text: str) -> str:
    await asyncio.sleep(0.05)
    return f"{text}!"


def each(text: str) -> Iterator[str]:
    yield from text


@pytest.mark.parametrize("guarantee", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
@pytest.mark.parametrize(
    ("function", "value", "outputs"),
    [
        (more, Order("apple", 1), [Order("apple", 2)]),
        (more, {"name": "apple", "count": 1}, [Order("apple", 2)]),
        (later, "a", ["a!"]),
        (each, "ab", ["a", "b"]),
        (lambda number: number + 1, 4, [5]),
    ],
)
def test_every_kind_and_type(function: object, value: object, outputs: list[object], guarantee: str) -> None:
    with FunctionTest(function, guarantee=guarantee) as f:
        f.send(value)
        assert f.outputs() == outputs


def test_everything_published_is_seen_and_tests_do_not_see_each_other() -> None:
    def fan_out(text: str, context: Context) -> None:
        context.publish("alerts", text, properties={"from": context.get_input_topics()[0]})
        context.get_logger().info("published %s", text)

    for word in ("one", "two"):
        with FunctionTest(fan_out, output=None) as f:
            f.send(word)
            message = f.output_message(topic="alerts")
            assert message.data == word.encode()
            assert dict(message.properties) == {"from": "in"}
            assert f"published {word}" in f.logs


def test_two_functions_beside_each_other_share_topics() -> None:
    with FunctionTest(shout) as first, FunctionTest(shout, inputs="out", output="end", beside=first) as second:
        first.send("hi")
        assert second.output() == "hi!!"


def test_what_cannot_begin_says_why() -> None:
    with pytest.raises(FunctionFailed, match="takes"), FunctionTest(lambda: "x"):
        pass
    with pytest.raises(InvalidConfig, match="paralellism"):
        FunctionTest(shout, paralellism=2)


def test_no_output_is_an_error_of_its_own() -> None:
    with FunctionTest(lambda text: None) as f:
        f.timeout_s = 0.2
        f.send("x")
        with pytest.raises(NoOutput, match="1 messages were sent, 1 received, 1 processed"):
            f.output()


@pytest.mark.slow
def test_two_hundred_tests_cost_less_than_ten_seconds() -> None:
    """By what the process uses, so that a busy machine does not fail it: a quarter of both."""
    with FunctionTest(shout):
        began_s = time.process_time()
    for number in range(50):
        with FunctionTest(shout) as f:
            f.send(f"{number}")
            assert f.output() == f"{number}!"
    assert time.process_time() - began_s < 2.5


def test_dead_letters_are_the_tests_own() -> None:
    settings: dict[str, Any] = {"max_message_retries": 0, "dead_letter_topic": "letters"}
    for text in ("one", "two"):
        with FunctionTest(Flaky(1), **settings) as f:
            f.send(text)
            assert f"cannot take {text}" in f.failures[0]
            assert [message.decode() for message in f.outputs(topic="letters", into=bytes)] == [text]


def test_a_failure_before_a_restart_fails_the_test_all_the_same() -> None:
    def check() -> None:
        with FunctionTest(Flaky(1), max_message_retries=0) as f:
            f.send("hello")
            f.settle()
            f.restart()

    with pytest.raises(FunctionFailed, match="cannot take hello"):
        check()


def test_a_failure_that_was_looked_at_before_a_restart_is_done_with() -> None:
    with FunctionTest(Flaky(1), max_message_retries=0) as f:
        f.send("hello")
        assert "cannot take hello" in f.failures[0]
        f.restart()
        f.send("again")
        assert f.output() == "again"


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_the_clock_is_moved_forwards_by_a_number(seconds: float) -> None:
    with FunctionTest(shout) as f, pytest.raises(InvalidConfig, match="must be a finite number >= 0"):
        f.advance(seconds)


@pytest.mark.parametrize(
    "settings",
    [{"topics_pattern": "persistent://public/default/orders-.*"}, {"input_specs": {"o-.*": {"regexPattern": True}}}],
)
def test_patterns_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=r"pattern .* is not supported, because tests use separate topics"):
        FunctionTest(shout, inputs=None, **settings)
