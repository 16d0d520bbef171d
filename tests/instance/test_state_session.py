"""The session against a model: what several instances read while their layers are at any point of the way."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.errors import InvalidConfig, StateRefused
from magnetar.instance.state.layer import Layer, changes_of, merge
from magnetar.instance.state.session import READ_AHEAD_KEYS_MAX, Content, StateSession
from magnetar.instance.stopping import InstanceStopping
from magnetar.state.values import Change, Delete, Increment, Put, counter_bytes, counter_number

KEYS = ("a", "b", "ü")
INT64 = 2**63 - 1


class Store:
    """A table as the table service keeps it.

    Attributes:
        questions: the keys of each read.
    """

    def __init__(self) -> None:
        self.content: dict[bytes, Content] = {}
        self.questions: list[list[bytes]] = []

    def read(self, keys: Sequence[bytes]) -> list[Content]:
        self.questions.append(list(keys))
        return [self.content.get(key) for key in keys]

    def apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case Put(key, data):
                    self.content[key] = data
                case Delete(key):
                    self.content.pop(key, None)
                case Increment(key, amount):
                    self.content[key] = add(self.content.get(key), amount)


def add(content: Content, amount: int) -> int:
    """Add to what is under a key.

    Raises:
        ValueError: it is no number.
    """
    number = counter_number(content) if isinstance(content, bytes) else content or 0
    if number is None:
        raise ValueError("no counter")
    return number + amount


class Way:
    """A session with its layers on the way to the store, in order; a lone thread of control plays all parts."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.layers: list[Layer] = []
        self.session = StateSession(self.read)

    def read(self, keys: Sequence[bytes]) -> list[Content]:
        return self.store.read(keys)

    def ship(self, ends_unit: bool = True) -> None:
        layer = self.session.take(ends_unit=ends_unit)
        if layer is not None:
            self.layers.append(layer)

    def arrive(self, count: int) -> None:
        """Let some layers be stored, in one call."""
        batch, self.layers = self.layers[:count], self.layers[count:]
        if batch:
            self.store.apply(changes_of(merge(batch)))
            for layer in batch:
                self.session.forget(layer)

    def would_wait(self, key: str) -> bool:
        """Whether a read of a key has to wait for layers on their way, which a lone thread cannot."""
        written = counted = False
        for layer in self.layers:
            written = written or key in layer.values
            counted = counted or key in layer.increments
        return counted and not written


keys = st.sampled_from(KEYS)
operations = st.one_of(
    st.tuples(st.just("incr"), keys, st.integers(-3, 3)),
    st.tuples(st.just("put"), keys, st.sampled_from([b"", b"text", bytes(7) + b"\2", b"\xff" * 8])),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("ship"), st.booleans()),
    st.tuples(st.just("arrive"), st.integers(1, 3)),
)


@given(st.lists(operations, max_size=60))
@settings(max_examples=400)
def test_lone_session_reads_what_a_dictionary_would_give(steps: list[tuple[object, ...]]) -> None:
    way = Way(Store())
    session = way.session
    model: dict[str, Content] = {}
    for step in steps:
        match step:
            case ("incr", str(key), int(amount)):
                try:
                    expected = add(model.get(key), amount)
                except ValueError:
                    # Refused at once where the session knows, else it would be by the store.
                    if key in session._values or key in session._known:
                        with pytest.raises(StateRefused, match="is no counter"):
                            session.incr_counter(key, amount)
                    continue
                session.incr_counter(key, amount)
                model[key] = expected
            case ("put", str(key), bytes(data)):
                session.put_state(key, data)
                model[key] = data
            case ("delete", str(key)):
                session.delete_state(key)
                model.pop(key, None)
            case ("get", str(key)):
                if way.would_wait(key):
                    way.arrive(len(way.layers))
                content = model.get(key)
                assert session.get_state(key) == (counter_bytes(content) if isinstance(content, int) else content)
                if content in (b"", b"text"):
                    with pytest.raises(StateRefused):
                        session.get_counter(key)
                else:
                    assert session.get_counter(key) == add(content, 0)
            case ("ship", bool(ends_unit)):
                way.ship(ends_unit)
            case ("arrive", int(count)):
                way.arrive(count)
    way.ship()
    way.arrive(len(way.layers))
    assert way.store.content == {key.encode(): content for key, content in model.items()}


steps_of_many = st.lists(
    st.one_of(
        st.tuples(st.just("incr"), st.integers(0, 2), keys, st.integers(-(2**50), 2**50)),
        st.tuples(st.sampled_from(["ship", "arrive", "get"]), st.integers(0, 2), keys, st.integers(1, 3)),
    ),
    max_size=80,
)


@given(steps_of_many)
@settings(max_examples=300)
def test_counters_of_many_sessions_are_never_counted_twice_or_lost(steps: list[tuple[str, int, str, int]]) -> None:
    """A read gives what is stored and the reader's own; that is neither more nor less than what was added."""
    store = Store()
    ways = [Way(store) for _ in range(3)]
    totals = dict.fromkeys(KEYS, 0)
    for what, who, key, amount in steps:
        way = ways[who]
        match what:
            case "incr":
                way.session.incr_counter(key, amount)
                totals[key] += amount
            case "ship":
                way.ship(ends_unit=amount > 1)
            case "arrive":
                way.arrive(amount)
            case "get":
                if way.would_wait(key):
                    way.arrive(len(way.layers))
                stored = way.session._known.get(key, store.content.get(key.encode())) or 0  # at the piece's first read
                assert isinstance(stored, int)
                assert way.session.get_counter(key) == stored + way.session._increments.get(key, 0)
    for way in ways:
        way.ship()
        way.arrive(len(way.layers))
    assert {key: store.content.get(key.encode(), 0) for key in KEYS} == totals


def test_increments_beyond_64_bits_are_sent_in_parts() -> None:
    layer = Layer(1, {}, {"a": 2 * INT64 + 5, "b": -2 * INT64 - 7})
    changes = changes_of(layer)
    for name, total in layer.increments.items():
        amounts = [change.amount for change in changes if isinstance(change, Increment) and change.key == name.encode()]
        assert sum(amounts) == total
        assert all(-INT64 - 1 <= amount <= INT64 for amount in amounts)


def test_second_unit_asks_once_for_all_that_the_first_asked_for() -> None:
    store = Store()
    session = StateSession(store.read)
    for key in "abc":
        session.get_state(key)
    session.take()
    for key in "bcad":
        session.get_state(key)
    assert [sorted(question) for question in store.questions] == [[b"a"], [b"b"], [b"c"], [b"a", b"b", b"c"], [b"d"]]


def test_reads_are_fresh_in_each_unit_and_kept_over_its_pieces() -> None:
    store = Store()
    way = Way(store)
    assert way.session.get_counter("a") == 0
    store.apply([Increment(b"a", 5)])
    assert way.session.get_counter("a") == 0
    way.session.incr_counter("a", 1)
    way.ship(ends_unit=False)
    assert way.session.get_counter("a") == 1
    assert len(store.questions) == 1
    way.ship(ends_unit=True)
    way.arrive(1)
    assert way.session.get_counter("a") == 6


def test_reading_ahead_is_bounded_by_what_the_last_unit_asked_for() -> None:
    store = Store()
    session = StateSession(store.read)
    for number in range(100):
        session.get_state(f"k{number}")
    session.take()
    session.get_state("once")
    session.take()
    session.get_state("twice")
    assert store.questions[-1] == [b"twice", b"once", b"k99", b"k98", b"k97"]


def test_reading_ahead_is_bounded_in_keys_and_bytes() -> None:
    store = Store()
    session = StateSession(store.read)
    for number in range(READ_AHEAD_KEYS_MAX + 10):
        session.get_state(f"k{number}")
    session.take()
    session.get_state("new")
    assert len(store.questions[-1]) == READ_AHEAD_KEYS_MAX + 1
    store.apply([Put(f"large{number}".encode(), bytes(400_000)) for number in range(9)])
    for number in range(9):
        session.get_state(f"large{number}")
    session.take()
    session.get_state("newer")
    assert len(store.questions[-1]) < 9


def test_read_of_a_counter_on_its_way_waits_until_it_is_stored() -> None:
    store = Store()
    way = Way(store)
    way.session.incr_counter("a", 1)
    way.ship()
    found: list[int] = []

    def count() -> None:
        way.session.begin()
        found.append(way.session.get_counter("a"))

    thread = threading.Thread(target=count)
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    assert not store.questions
    way.arrive(1)
    thread.join(60)
    assert found == [1]


def test_stop_ends_a_read_that_waits() -> None:
    way = Way(Store())
    way.session.incr_counter("a", 1)
    way.ship()
    ended: list[BaseException] = []

    def read() -> None:
        way.session.begin()
        try:
            way.session.get_counter("a")
        except InstanceStopping as error:
            ended.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    way.session.stop()
    thread.join(60)
    assert len(ended) == 1


def test_failed_read_is_asked_again() -> None:
    answers: list[Content | Exception] = [StateRefused("no"), 7]

    def read(keys: Sequence[bytes]) -> list[Content]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    session = StateSession(read)
    with pytest.raises(StateRefused, match="no"):
        session.get_counter("a")
    assert session.get_counter("a") == 7


def test_suspect_is_looked_at_before_it_is_incremented() -> None:
    store = Store()
    store.apply([Put(b"text", b"hello")])
    session = StateSession(store.read)
    session.incr_counter("text", 1)  # nothing is known of it yet
    session.suspect(b"text")
    layer = session.take()
    assert layer is not None
    session.forget(layer)
    with pytest.raises(StateRefused, match="state 'text' holds 5 bytes"):
        session.incr_counter("text", 1)
    session.delete_state("text")
    session.incr_counter("text", 1)
    assert session.get_counter("text") == 1


def test_session_is_full_when_much_is_fresh() -> None:
    session = StateSession(Store().read)
    assert not session.is_full
    for _ in range(3):
        session.put_state("a", bytes(1 << 19))
    assert session.is_full
    session.take()
    assert not session.is_full
    for number in range(10_001):
        session.incr_counter(f"k{number}", 1)
    assert session.is_full


def test_counter_that_leaves_64_bits_is_refused_once_it_is_known() -> None:
    store = Store()
    store.apply([Increment(b"a", INT64 - 1)])
    session = StateSession(store.read)
    assert session.get_counter("a") == INT64 - 1
    with pytest.raises(StateRefused, match=f"counter 'a' would be {INT64 + 1}"):
        session.incr_counter("a", 2)
    session.incr_counter("a", 1)
    assert session.get_counter("a") == INT64


def test_calls_of_other_threads_and_after_the_call_are_refused_not_lost() -> None:
    session = StateSession(Store().read)
    calls: dict[str, Callable[[], object]] = {
        "incr_counter": lambda: session.incr_counter("a", 1),
        "get_counter": lambda: session.get_counter("a"),
        "put_state": lambda: session.put_state("b", "v"),
        "get_state": lambda: session.get_state("b"),
        "delete_state": lambda: session.delete_state("b"),
    }

    def refused() -> list[str]:
        said = []
        for call in calls.values():
            try:
                call()
            except InvalidConfig as error:
                said.append(str(error))
        return said

    session.begin()
    for call in calls.values():
        call()
    elsewhere: list[str] = []
    thread = threading.Thread(target=lambda: elsewhere.extend(refused()), name="mine")
    thread.start()
    thread.join(60)
    session.end()
    for said in (elsewhere, refused()):
        assert [text.split()[0] for text in said] == [f"context.{name}" for name in calls]
    assert "was called on thread 'mine'" in elsewhere[0]
    layer = session.take()
    assert layer is not None
    assert (layer.increments, layer.values) == ({"a": 1}, {"b": None})


@pytest.mark.parametrize("amount", [2**63, -(2**63) - 1, 2.5, math.nan, "1", None])
def test_odd_amounts_and_texts_are_refused_by_the_call(amount: Any) -> None:
    session = StateSession(Store().read)
    for _ in range(2):  # the first increment of a key, and one of many
        with pytest.raises((OverflowError, TypeError)):
            session.incr_counter("a", amount)
        session.incr_counter("a", 2**62)
        session.incr_counter("a", -(2**62))
    for call in (session.get_state, session.delete_state, lambda key: session.put_state(key, b"")):
        with pytest.raises(StateRefused, match="has no UTF-8 form"):
            call("a\udc80")
    with pytest.raises(StateRefused, match="has no UTF-8 form"):
        session.put_state("a", "a\udc80")
    layer = session.take()
    assert layer is not None
    assert layer.increments == {"a": 0}
