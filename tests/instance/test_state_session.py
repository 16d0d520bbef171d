"""The session against a model: what several instances read while their layers are at any point of the way."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.errors import InvalidConfig, StateRefused
from magnetar.instance.state.layer import Layer, changes_of, merge
from magnetar.instance.state.session import KEPT_BYTES_MAX, READ_AHEAD_KEYS_MAX, StateSession
from magnetar.instance.stopping import InstanceStopping
from magnetar.state.generations import Generations
from magnetar.state.values import Change, Content, Delete, Increment, Put, Reading, counter_bytes, counter_number

KEYS = ("a", "b", "ü")
INT64 = 2**63 - 1


TABLE = "t/n/f"


class Store:
    """A table as the table service keeps it.

    Attributes:
        questions: the keys of each read.
        generations: of the table.
    """

    def __init__(self) -> None:
        self.content: dict[bytes, Content] = {}
        self.questions: list[list[bytes]] = []
        self.generations = Generations()

    def read(self, keys: Sequence[bytes]) -> Reading:
        """Answer as a service that tells no generation."""
        self.questions.append(list(keys))
        return Reading([self.content.get(key) for key in keys], 0)

    def look(self, writer: bytes, keys: Sequence[bytes]) -> Reading:
        return Reading(self.read(keys).contents, self.generations.of(TABLE, writer))

    def apply(self, changes: Sequence[Change], writer: bytes = b"") -> bool:
        """Make changes, all or none; return whether they were made."""
        content = dict(self.content)
        for change in changes:
            match change:
                case Put(key, data):
                    content[key] = data
                case Delete(key):
                    content.pop(key, None)
                case Increment(key, amount):
                    try:
                        content[key] = add(content.get(key), amount)
                    except ValueError:
                        return False
        self.content = content
        self.generations.change(TABLE, writer)
        return True


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
        self.landed: list[bool] = []  # of the first layers, whether they were stored
        self.writer = os.urandom(16)
        self.session = StateSession(self.look)

    def look(self, keys: Sequence[bytes]) -> Reading:
        return self.store.look(self.writer, keys)

    def ship(self, ends_unit: bool = True) -> None:
        layer = self.session.take(ends_unit=ends_unit)
        if layer is not None:
            self.layers.append(layer)

    def arrive(self, count: int) -> None:
        """Let some layers be stored, in one call, or be refused."""
        batch, self.layers = self.layers[:count], self.layers[count:]
        if batch:
            is_stored = self.store.apply(changes_of(merge(batch)), self.writer)
            for layer in batch:
                self.session.forget(layer, is_stored=is_stored)

    def land(self) -> None:
        """Let the oldest layer that is not in the store get there, while nobody has heard of it."""
        if len(self.landed) < len(self.layers):
            layer = self.layers[len(self.landed)]
            self.landed.append(self.store.apply(changes_of(layer), self.writer))

    def hear(self) -> None:
        """Let the session hear what became of the oldest layer."""
        if self.landed:
            self.session.forget(self.layers.pop(0), is_stored=self.landed.pop(0))

    def fail(self) -> None:
        """Have the oldest layer never be stored."""
        if self.layers and not self.landed:
            self.session.forget(self.layers.pop(0), is_stored=False)

    def sights(self, key: str) -> list[Content]:
        """What may be seen under a key: what will be there once all layers are, or a layer that has landed already."""
        content, found = self.store.content.get(key.encode()), []
        for layers in (self.layers[len(self.landed) :], self.layers):
            sight: Content = content
            for layer in layers:
                if key in layer.values:
                    sight = layer.values[key]
                if key in layer.increments:
                    try:
                        sight = add(sight, layer.increments[key])
                    except ValueError:
                        sight = b"no counter"
            found.append(sight)
        return found

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
                        with pytest.raises(StateRefused, match="is not a counter"):
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


changes_of_call = st.lists(operations.filter(lambda step: step[0] in ("incr", "put", "delete")), max_size=4)


@given(st.lists(st.tuples(changes_of_call, st.booleans(), st.booleans()), max_size=12))
@settings(max_examples=300)
def test_failed_calls_leave_nothing_behind(calls: list[tuple[list[tuple[object, ...]], bool, bool]]) -> None:
    """Whether they changed something or not; some of them behind a `take`."""
    session, other = Way(Store()).session, Way(Store()).session
    for (changes, is_failing, is_taken), _ in zip(calls, session.of_each_call(None), strict=False):
        for change in changes:
            for target in (session,) if is_failing else (session, other):
                match change:
                    case ("incr", str(key), int(amount)):
                        with contextlib.suppress(StateRefused):
                            target.incr_counter(key, amount)
                    case ("put", str(key), bytes(data)):
                        target.put_state(key, data)
                    case ("delete", str(key)):
                        target.delete_state(key)
        if is_failing:
            session.undo()
        assert (session._values, session._increments) == (other._values, other._increments)
        if is_taken:
            session.take()
            other.take()


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


steps_of_writers = st.lists(
    st.tuples(
        st.one_of(
            st.just("get"),
            st.sampled_from(["get", "put", "end"]),
            st.sampled_from(["put", "delete", "incr", "end", "piece"]),
            st.sampled_from(["land", "hear", "fail", "elsewhere", "restart"]),
        ),
        st.integers(0, 1),
        st.sampled_from(KEYS[:2]),
    ),
    min_size=6,
    max_size=60,
)


@given(steps_of_writers)
@settings(max_examples=500)
def test_what_a_unit_reads_was_there_while_it_lasted(steps: list[tuple[str, int, str]]) -> None:
    """Whatever is kept from unit to unit: no session reads what was replaced before its unit began."""
    store = Store()
    ways = [Way(store) for _ in range(2)]
    seen: list[dict[str, list[Content]]] = [{key: [None] for key in KEYS} for _ in ways]
    for number, (what, who, key) in enumerate(steps):
        way = ways[who]
        session = way.session
        match what:
            case "put":
                session.put_state(key, b"%d" % number)
            case "delete":
                session.delete_state(key)
            case "incr":
                with contextlib.suppress(StateRefused):
                    session.incr_counter(key, 1)
            case "end":
                way.ship()
                seen[who] = {key: [] for key in KEYS}
            case "piece":
                way.ship(ends_unit=False)
            case "land":
                way.land()
            case "hear":
                way.hear()
            case "fail":
                way.fail()
            case "elsewhere":
                store.apply([Put(key.encode(), b"%d" % number)])
            case "restart":
                store.generations = Generations()
            case "get" if not way.would_wait(key) and key not in session._values and key not in session._increments:
                allowed = [counter_bytes(one) if isinstance(one, int) else one for one in seen[who][key]]
                try:
                    found = session.get_state(key)
                except StateRefused:
                    found = b"no counter"
                assert found in allowed, (found, allowed)
        for one, contents in zip(ways, seen, strict=True):
            for name in KEYS:
                contents[name] += one.sights(name)


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


def test_what_is_kept_is_believed_until_another_changes_the_table() -> None:
    way = Way(Store())
    way.store.apply([Put(b"a", b"1"), Increment(b"n", 5)])
    for _ in range(2):
        assert way.session.get_state("a") == b"1"
        assert way.session.get_counter("n") == 5
        way.ship()
    assert way.store.questions == [[b"a"], [b"n"], []]
    way.store.apply([Put(b"a", b"2")])
    assert way.session.get_state("a") == b"2"
    assert way.session.get_counter("n") == 5
    assert way.store.questions[3:] == [[], [b"a", b"n"]]


def test_keys_of_before_are_asked_for_at_once_while_others_change_the_table() -> None:
    way = Way(Store())
    for number in range(4):
        way.store.apply([Put(b"a", b"%d" % number)])
        assert way.session.get_state("a") == b"%d" % number
        way.ship()
    assert way.store.questions == [[b"a"], [], [b"a"], [b"a"], [b"a"]]
    for _ in range(2):
        assert way.session.get_state("a") == b"3"
        way.ship()
    assert way.store.questions[5:] == [[b"a"], []]


def test_own_changes_are_part_of_what_is_kept() -> None:
    way = Way(Store())
    assert way.session.get_state("a") is None
    assert way.session.get_counter("n") == 0
    for number in range(1, 4):
        way.session.put_state("a", b"%d" % number)
        way.session.incr_counter("n", 1)
        way.ship()
        if number == 2:
            way.arrive(2)
        assert way.session.get_state("a") == b"%d" % number
        assert way.session.get_counter("n") == number
    way.session.delete_state("a")
    way.ship()
    assert way.session.get_state("a") is None
    assert way.store.questions == [[b"a"], [b"n"], [], [], []]


def test_unread_unit_changes_what_is_kept() -> None:
    way = Way(Store())
    assert way.session.get_state("a") is None
    assert way.session.get_counter("n") == 0
    way.ship()
    way.session.put_state("a", b"1")
    way.session.incr_counter("n", 1)
    way.ship()
    way.arrive(1)
    assert way.session.get_state("a") == b"1"
    assert way.session.get_counter("n") == 1
    assert way.store.questions[2:] == [[]]


def test_nothing_is_kept_over_a_start_of_the_store() -> None:
    way = Way(Store())
    assert way.session.get_state("a") is None
    way.ship()
    way.store.content[b"a"] = b"of a backup"
    way.store.generations = Generations()
    assert way.session.get_state("a") == b"of a backup"


def test_what_failed_is_not_kept() -> None:
    way = Way(Store())
    assert way.session.get_state("a") is None
    way.session.put_state("a", b"1")
    way.ship()
    way.fail()
    assert way.session.get_state("a") is None


def test_what_failed_while_it_was_known_is_not_kept() -> None:
    way = Way(Store())
    assert way.session.get_state("a") is None
    way.session.put_state("a", b"1")
    way.ship()
    assert way.session.get_state("a") == b"1"
    way.fail()
    way.ship()
    assert way.session.get_state("a") is None


def test_layer_that_another_may_have_overwritten_is_not_kept() -> None:
    way = Way(Store())
    way.session.get_state("a")
    way.session.put_state("a", b"1")
    way.ship()
    way.land()
    way.store.apply([Put(b"a", b"2")])
    way.session.get_state("b")  # the generation is that of the other's change
    assert way.session.get_state("a") == b"1"  # it is not known yet that the layer is stored
    way.ship()
    way.hear()
    assert way.session.get_state("a") == b"2"


def test_change_of_such_a_layer_before_the_store_was_asked_is_not_kept() -> None:
    way = Way(Store())
    way.session.get_state("b")
    way.ship()
    way.session.put_state("a", b"1")
    way.ship()
    assert way.session.get_state("a") == b"1"
    way.session.put_state("a", b"2")
    way.ship(ends_unit=False)
    way.land()
    way.land()
    way.store.apply([Put(b"a", b"3")])
    way.session.get_state("b")
    way.ship()
    way.hear()
    way.hear()
    assert way.session.get_state("a") == b"3"


def test_memory_of_what_is_kept_is_bounded() -> None:
    way = Way(Store())
    way.store.apply([Put(b"k%d" % number, bytes(KEPT_BYTES_MAX // 8)) for number in range(20)])
    for _ in range(2):
        for number in range(20):
            assert len(way.session.get_state(f"k{number}") or b"") == KEPT_BYTES_MAX // 8
            assert held_bytes(way.session) <= 2 * KEPT_BYTES_MAX  # of the units before, and of this one
        way.ship()
        assert held_bytes(way.session) <= KEPT_BYTES_MAX
    assert 0 < held_bytes(way.session) <= KEPT_BYTES_MAX


@pytest.mark.parametrize("ends_unit", [True, False])
def test_memory_of_what_is_written_over_is_bounded(ends_unit: bool) -> None:
    way = Way(Store())
    for number in range(40):
        way.session.get_state(f"k{number}")
    way.ship(ends_unit)
    for number in range(40):
        way.session.put_state(f"k{number}", bytes(KEPT_BYTES_MAX // 16))
        way.ship(ends_unit)
        way.arrive(1)
        assert held_bytes(way.session) <= KEPT_BYTES_MAX + KEPT_BYTES_MAX // 16
    assert way.session.get_state("k0") == bytes(KEPT_BYTES_MAX // 16)


def test_keys_that_nobody_asks_for_any_more_are_not_kept() -> None:
    way = Way(Store())
    for number in range(100_000):
        way.session.get_state(f"k{number}")
        if number % 100 == 99:
            way.ship()
    assert len(way.session._kept) == len(way.session._recent) < KEPT_BYTES_MAX // 250


def held_bytes(session: StateSession) -> int:
    contents = [*session._known.values(), *session._kept.values()]
    return sum(len(content) for content in contents if isinstance(content, bytes))


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


def test_counter_on_its_way_is_waited_for_beside_what_is_kept() -> None:
    way = Way(Store())
    way.session.get_state("b")
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

    def read(keys: Sequence[bytes]) -> Reading:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Reading([answer], 0)

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
    with pytest.raises(StateRefused, match="state 'text' is not a counter: it has 5 bytes"):
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


def test_what_was_undone_makes_no_session_full() -> None:
    session = StateSession(Store().read)
    session.begin_call()
    session.put_state("a", bytes(1 << 19))
    for _ in range(3):
        session.begin_call()
        session.put_state("b", bytes(1 << 19))
        session.delete_state("c")
        session.put_state("b", bytes(1 << 19))
        session.undo()
    assert not session.is_full
    session.begin_call()
    for _ in range(2):
        session.put_state("b", bytes(1 << 19))
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
        with pytest.raises(StateRefused, match="cannot be encoded as UTF-8"):
            call("a\udc80")
    with pytest.raises(StateRefused, match="cannot be encoded as UTF-8"):
        session.put_state("a", "a\udc80")
    layer = session.take()
    assert layer is not None
    assert layer.increments == {"a": 0}
