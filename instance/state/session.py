"""Hold a function's unstored state changes, which are visible to its own reads.

Design: changes are collected in dictionaries on the function's thread, so that counting a word costs about as much as
adding to a dictionary. At the end of a piece `take` turns them into a *layer*, which is sent to the store next to the
piece's outputs; once it is stored, `forget` drops it. A read checks the new changes first, then the layers in flight,
and finally queries the store.

A pending key has one of three forms: written (`values`: bytes, or None for deleted), incremented (`increments`), or
both, in which case the increments came later. The function's thread may use everything here; other threads may only
call `forget`, `suspect` and `stop`. Calls by user code from other threads, or after its call has ended, are rejected:
they would become part of an unrelated message, or of none.

A failed call leaves no changes: the value of a key before the call's first change is noted, and `undo` restores it.
While many messages are processed in a row, the iterator that returns the function's context drops the notes of the
previous call, so that no Python code runs per message.

Reads of the store are cached until the unit ends: all its messages existed when it started, so their causes were stored
before. Reads are also cached beyond the unit, up to `KEPT_BYTES_MAX`, but must be validated: the first query of each
unit returns the table's *generation*, which changes when another client changes the table. If it is the same, the cache
and this session's own changes are valid, and one short query is all that a unit needs. Otherwise the cache is dropped.
Functions mostly request recently used keys, so the next query includes the keys of the last units in one call: up to
four times as many as the last unit requested, which costs little compared with the calls saved. While other clients
change the table continuously, the first query of a unit includes them immediately.

The store may reject an increment long after the function made it, because the key holds text. The messages whose
changes were lost are then redelivered, and the key becomes a *suspect*: it is read before it is incremented, so that
the error is raised in the call that causes it.

Invariant: a number from the store is never combined with increments that it may already include. Therefore a key that a
layer in flight increments is read only after that layer is stored, which takes one commit.

Invariant: the cache matches the table if no other client has changed the table since generation `_kept_at` was read. So
a value that a unit finds in a layer in flight is *passing* and not cached: it is unknown whether another client's
change came before or after that layer. A change by this session while it knows the generation is cached: another
client's earlier change was read, and a later one changes the generation. When a layer fails, the whole cache is
invalid.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat, starmap
from operator import index, itemgetter
from threading import get_ident
from typing import Any, NoReturn, TypeVar

from ...errors import InvalidConfig, StateRefused
from ...state.limits import VALUE_BYTES_MAX, check_key, check_put
from ...state.values import (
    COUNTER_BYTES,
    COUNTER_MAX,
    COUNTER_MIN,
    Content,
    Reading,
    counter_bytes,
    counter_number,
)
from ..stopping import InstanceStopping
from .layer import Layer

READ_AHEAD_KEYS_MAX = 10_000
READ_AHEAD_BYTES_MAX = 1024 * 1024
READ_AHEAD_FACTOR = 4
KEPT_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of the cache of earlier units, including overhead; reads of the current unit have the same limit."""
KEPT_ROW_BYTES = 250  # memory per key, in addition to its characters and value
LAYER_BYTES_MAX = 1024 * 1024  # a piece is shipped soon after its changes exceed this size
LAYER_KEYS_MAX = 10_000
SUSPECTS_MAX = 1000
ROW_BYTES = 64  # assumed overhead of a change in addition to its value
_SURELY_SHORT = 1024  # key length in characters that always fits, at four bytes each
NO_THREAD = 0
_ABSENT = object()
_last_of_three = itemgetter(2)


T = TypeVar("T")


class StateSession:
    """One instance's state, as seen by its function.

    Attributes:
        before_wait: called on the function's thread before it waits for taken changes to be stored.
    """

    def __init__(self, read: Callable[[Sequence[bytes]], Reading]) -> None:
        """Create a session without changes.

        Args:
            read: queries the store as the writer of the layers (`TableClient.look`); called on the function's thread,
                where it may block and raise errors.
        """
        self.before_wait: Callable[[], None] | None = None
        self._read = read
        self._values: dict[str, bytes | None] = {}
        self._increments: dict[str, int] = {}
        self._written_bytes = 0
        self._written_before = 0  # value before the current call's first write
        self._values_before: dict[str, Any] = {}  # earlier values of keys changed by the current call
        self._increments_before: dict[str, int | None] = {}
        self._known: dict[str, Content] = {}  # contents in store and layers read in this unit, without new changes
        self._known_bytes = 0  # size of the contents read in this unit
        self._passing: set[str] = set()  # known keys found in layers
        self._is_current = False  # whether the store was queried in this unit, so that `_known` includes the cache
        self._kept: dict[str, Content] = {}  # cache of earlier units, until this unit queries the store
        self._kept_at = 0  # generation of the cache; 0 if it is empty
        self._is_shared = False  # whether other clients had changed the table at the last query
        self._is_doubtful = False  # whether a layer failed, so that the cache may be wrong
        self._asked: dict[str, None] = {}  # keys requested in this unit
        self._asked_before = 0  # number of keys requested in the last unit with requests
        self._recent: dict[str, int] = {}  # keys of the last units with their memory size, newest last
        self._recent_bytes = 0
        self._is_ahead_due = False  # whether the next query includes recent keys
        self._suspects: dict[str, None] = {}
        self._layers: dict[int, Layer] = {}
        self._layer_count = 0
        self._forgotten = threading.Condition(threading.Lock())
        self._is_stopping = False
        self._thread = get_ident()

    # -- accepted callers ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Accept calls from this thread only, until `end`."""
        self._thread = get_ident()

    def end(self) -> None:
        """Reject calls until `begin`."""
        self._thread = NO_THREAD

    def _refuse(self, method: str) -> NoReturn:
        raise InvalidConfig(outside_of_call(method, "state changes belong to the message being processed"))

    # -- undoing a failed call's changes --------------------------------------------------------------------------

    def of_each_call(self, argument: T) -> Iterator[T]:
        """Yield the argument repeatedly; each iteration starts another call."""
        self.begin_call()
        forgotten = (starmap(noted.clear, repeat(())) for noted in (self._values_before, self._increments_before))
        return map(_last_of_three, zip(*forgotten, repeat(argument)))

    def begin_call(self) -> None:
        """Start a call, to which all changes from now on belong."""
        self._values_before.clear()
        self._increments_before.clear()

    def undo(self) -> None:
        """Drop the current call's changes, except those already taken."""
        if self._values_before:
            self._written_bytes = self._written_before
        for key, data in self._values_before.items():
            if data is _ABSENT:
                self._values.pop(key, None)
            else:
                self._values[key] = data
        for key, amount in self._increments_before.items():
            if amount is None:
                self._increments.pop(key, None)
            else:
                self._increments[key] = amount
        self.begin_call()

    def _note(self, key: str) -> None:
        """Record the value of a key before the current call's first write to it."""
        if not self._values_before:
            self._written_before = self._written_bytes
        if key not in self._values_before:
            self._values_before[key] = self._values.get(key, _ABSENT)
        if key not in self._increments_before:
            self._increments_before[key] = self._increments.get(key)

    # -- methods of the context ------------------------------------------------------------------------------------

    def incr_counter(self, key: str, amount: int) -> None:
        """Add to a counter."""
        # Avoid exceptions for new keys, because a word count has many in each batch.
        if get_ident() != self._thread:
            self._refuse("incr_counter")
        if type(amount) is not int or not COUNTER_MIN <= amount <= COUNTER_MAX:
            amount = _number(amount)
        if key in self._increments:
            before = self._increments[key]
            if key not in self._increments_before:
                self._increments_before[key] = before
            self._increments[key] = before + amount
        else:
            self._begin_counting(key, amount)

    def _begin_counting(self, key: str, amount: int) -> None:
        """Handle the first increment of a key since the last `take` or write."""
        _check_key(key)
        if key in self._values:
            _sum(key, self._values[key], amount)  # rejects values that are not counters
        elif key in self._known or key in self._suspects:
            _sum(key, self._look_up(key), amount)
        if key not in self._increments_before:
            self._increments_before[key] = None
        self._increments[key] = amount

    def get_counter(self, key: str) -> int:
        """Return a counter, or 0 if it does not exist."""
        if get_ident() != self._thread:
            self._refuse("get_counter")
        return _sum(key, self._look_up(key), 0)

    def put_state(self, key: str, value: str | bytes) -> None:
        """Write a value."""
        if get_ident() != self._thread:
            self._refuse("put_state")
        data = _data(value)
        if key not in self._values:
            _check_key(key)
        if len(data) > VALUE_BYTES_MAX:
            check_put(key.encode(), data)
        self._note(key)
        if self._increments:
            self._increments.pop(key, None)
        self._values[key] = data
        self._written_bytes += len(data)

    def get_state(self, key: str) -> bytes | None:
        """Return a value or None; for a counter, 8 bytes in big-endian order."""
        if get_ident() != self._thread:
            self._refuse("get_state")
        content = self._look_up(key)
        return counter_bytes(content) if isinstance(content, int) else content

    def delete_state(self, key: str) -> None:
        """Delete a value or counter if it exists."""
        if get_ident() != self._thread:
            self._refuse("delete_state")
        _check_key(key)
        self._note(key)
        self._increments.pop(key, None)
        self._values[key] = None

    # -- reading --------------------------------------------------------------------------------------------------

    def _look_up(self, key: str) -> Content:
        content: Content
        if key in self._values:
            content = self._values[key]
        else:
            if key not in self._asked:
                _check_key(key)
                self._asked[key] = None
            if key not in self._known:
                self._load(key)
            content = self._known[key]
        increment = self._increments.get(key)
        return content if increment is None else _sum(key, content, increment)

    def _load(self, key: str) -> None:
        """Load the value that a key has once all layers are stored."""
        base: Content = None
        is_written = is_counted = False
        for layer in list(self._layers.values()):
            if key in layer.values:
                base, is_written = layer.values[key], True
            if key in layer.increments:
                is_counted = True
                if is_written:
                    base = _sum(key, base, layer.increments[key])
        if is_written:
            self._known[key] = base
            self._passing.add(key)
            return
        if self._is_doubtful and not self._is_current:
            self._is_doubtful = False  # reset first, because a later failure concerns the next unit
            self._drop_kept()
        if self._kept and not self._is_shared:
            self._ask([] if key in self._kept or is_counted else [key])
            if key in self._known:
                return
        if is_counted:
            self._wait_for_layers()
        self._ask([key, *self._keys_ahead(key)])

    def _ask(self, names: Sequence[str]) -> None:
        """Query keys that no layer changes, and validate the cache."""
        contents, generation = self._read([name.encode() for name in names])
        if not self._is_current:
            self._is_current = True
            self._is_shared = self._kept_at not in (0, generation)
            if self._kept_at == generation:
                self._believe_kept()
            else:
                self._drop_kept()
                self._kept_at = generation
        known_bytes = sum(map(_memory, names, contents))
        self._known_bytes += known_bytes
        if self._known_bytes > KEPT_BYTES_MAX:
            self._forget_known()
            self._known_bytes = known_bytes
        self._known.update(zip(names, contents, strict=True))

    def _forget_known(self) -> None:
        """Drop a unit's reads that exceed the cache limit."""
        self._known.clear()
        self._passing.clear()
        self._known_bytes = 0

    def _believe_kept(self) -> None:
        kept, self._kept = self._kept, {}
        for key in self._known:  # found in layers before the store was queried
            if key in kept:
                self._passing.discard(key)
            else:
                kept[key] = self._known[key]
        self._known = kept

    def _drop_kept(self) -> None:
        self._kept = {}
        self._kept_at = 0

    def _keys_ahead(self, key: str) -> list[str]:
        """Return further keys to include in the query for ``key``, if it is the unit's first query."""
        if not self._is_ahead_due:
            return []
        self._is_ahead_due = False
        known, layers = self._known, list(self._layers.values())
        keys_left = min(READ_AHEAD_FACTOR * self._asked_before, READ_AHEAD_KEYS_MAX)
        bytes_left = READ_AHEAD_BYTES_MAX
        names: list[str] = []
        for name in reversed(self._recent):
            keys_left -= 1
            bytes_left -= self._recent[name] - KEPT_ROW_BYTES + ROW_BYTES
            if keys_left < 0 or bytes_left < 0:
                break
            if name == key or name in known:
                continue
            if not any(name in layer.values or name in layer.increments for layer in layers):
                names.append(name)
        return names

    def _wait_for_layers(self) -> None:
        """Wait until all taken changes are stored.

        Raises:
            InstanceStopping: the instance is stopping.
        """
        if self.before_wait is not None:
            self.before_wait()
        with self._forgotten:
            while self._layers:
                if self._is_stopping:
                    raise InstanceStopping
                self._forgotten.wait()

    # -- storing --------------------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the new changes have reached a limit and should be taken now."""
        return (
            self._written_bytes > LAYER_BYTES_MAX
            or len(self._increments) > LAYER_KEYS_MAX
            or len(self._values) > LAYER_KEYS_MAX
        )

    def take(self, *, ends_unit: bool = True) -> Layer | None:
        """Return the new changes as a layer, or None; reads include the layer until it is forgotten.

        Args:
            ends_unit: whether to end the unit, so that later reads query the store again.
        """
        if self._known:
            self._absorb(self._known)
            if self._known_bytes > KEPT_BYTES_MAX:
                self._forget_known()
        if self._kept:
            self._absorb(self._kept)
        if ends_unit:
            self._end_unit()
        if not self._increments and not self._values:
            return None
        self._layer_count += 1
        size = self._written_bytes + ROW_BYTES * (len(self._increments) + len(self._values))
        layer = Layer(self._layer_count, self._values, self._increments, size)
        self._layers[layer.number] = layer
        self._values, self._increments, self._written_bytes = {}, {}, 0
        self.begin_call()
        return layer

    def _absorb(self, contents: dict[str, Content]) -> None:
        """Apply the new changes to known or cached contents."""
        for key in self._values.keys() & contents.keys():
            contents[key] = data = self._values[key]
            self._known_bytes += len(data or b"")
            if key in self._recent:
                self._size_up(key, data)
            if self._is_current:
                self._passing.discard(key)
        for key in self._increments.keys() & contents.keys():
            try:
                contents[key] = _sum(key, contents[key], self._increments[key])
            except StateRefused:
                del contents[key]  # incremented before it was read: the store will reject it
                self._passing.discard(key)

    def _end_unit(self) -> None:
        """Move the reads to the cache, so that the next unit validates it."""
        if self._asked:
            known, recent = self._known, self._recent
            for key in self._asked:
                self._recent_bytes -= recent.pop(key, 0)
                recent[key] = 0
                self._size_up(key, known.get(key))
            self._asked_before = len(self._asked)
            self._asked = {}
            self._is_ahead_due = True
        if self._known:
            for key in self._passing:
                del self._known[key]
            self._passing.clear()
            if self._is_current and self._kept_at:
                self._kept = self._known
            self._known = {}
        self._known_bytes = 0
        self._is_current = False
        while self._recent_bytes > KEPT_BYTES_MAX:
            oldest = next(iter(self._recent))
            self._recent_bytes -= self._recent.pop(oldest)
            self._kept.pop(oldest, None)

    def _size_up(self, key: str, content: Content) -> None:
        """Update the recorded memory size of a recent key."""
        size = _memory(key, content)
        self._recent_bytes += size - self._recent[key]
        self._recent[key] = size

    def forget(self, layer: Layer, *, is_stored: bool = True) -> None:
        """Drop a layer that was stored or failed permanently (from any thread)."""
        if not is_stored:
            self._is_doubtful = True  # set before the removal becomes visible
        with self._forgotten:
            self._layers.pop(layer.number, None)
            self._forgotten.notify_all()

    def suspect(self, key: bytes) -> None:
        """Make later increments of a key read it first (from any thread)."""
        self._suspects[key.decode(errors="replace")] = None
        if len(self._suspects) > SUSPECTS_MAX:
            self._suspects.pop(next(iter(self._suspects)))

    def stop(self) -> None:
        """End all waits of reads (from any thread)."""
        with self._forgotten:
            self._is_stopping = True
            self._forgotten.notify_all()


def outside_of_call(method: str, why: str) -> str:
    """Return the error message for a context method called without a current message."""
    return (
        f"context.{method} was called on thread {threading.current_thread().name!r}, which is not inside a call of the"
        f" function: {why}; call it on the function's own thread, before the function returns"
    )


def _memory(key: str, content: Content) -> int:
    """Return the approximate memory size of a key and its content."""
    return KEPT_ROW_BYTES + len(key) + (len(content) if isinstance(content, bytes) else 0)


def _sum(key: str, content: Content, amount: int) -> int:
    """Return a counter's value after adding an amount."""
    number = counter_number(content) if isinstance(content, bytes) else content or 0
    if number is None:
        assert isinstance(content, bytes)
        raise StateRefused(
            f"state {key!r} is not a counter: it has {len(content)} bytes, not {COUNTER_BYTES}; use another key for the"
            " counter, or delete this one first",
            key.encode(),
        )
    number += amount
    if not COUNTER_MIN <= number <= COUNTER_MAX:
        raise StateRefused(f"counter {key!r} would be {number}, which exceeds 64 bits", key.encode())
    return number


def _number(amount: Any) -> int:
    try:
        number = index(amount)
    except TypeError:
        raise TypeError(f"a counter amount must be an int, not {type(amount).__name__}") from None
    if not COUNTER_MIN <= number <= COUNTER_MAX:
        raise OverflowError(f"counter amount {number} exceeds 64 bits")
    return number


def _data(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise StateRefused(f"a state value cannot be encoded as UTF-8: {error}; pass bytes") from error
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a state value must be str or bytes, not {type(value).__name__}: encode it, for example as JSON")


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a state key must be a str, not {type(key).__name__}")
    if not 0 < len(key) <= _SURELY_SHORT or not key.isascii():
        try:
            check_key(key.encode())
        except UnicodeEncodeError as error:
            raise StateRefused(f"state key {ascii(key)[:80]} cannot be encoded as UTF-8: {error}") from error
