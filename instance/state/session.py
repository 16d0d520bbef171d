"""StateSession: a function's changes that are not stored yet, which its own reads see.

Design: changes are gathered in dictionaries on the function's thread, so that counting a word costs about what adding
to a dictionary costs. At the end of a piece `take` makes a *layer* of them, which goes to the store beside the piece's
outputs; once it is stored, `forget` drops it. A read looks at the fresh changes first, then at the layers that are
on their way, then asks the store.

A key is pending in one of three forms: written (`values`: bytes, or None for deleted), incremented (`increments`), or
both, and then the increments came after. The function's thread may use everything here; other threads `forget`,
`suspect` and `stop` only. What user code calls from elsewhere, or once its call has ended, is refused: it would be part
of a message that it does not belong to, or of none.

Reads of the store are kept until the unit ends: all its messages were here when it began, so what led to them was
stored before. Functions mostly ask for the keys that they asked for a moment ago, so the first question of a unit asks
for those of the last units too, in one call: for up to four times as many keys as the last unit asked for, which costs
little beside the calls that it saves.

The store may refuse an increment, long after the function made it: the key holds text. What the function did meanwhile
is asked for again then, and the key is a *suspect*: it is read before it is incremented, so that the refusal meets the
very call that it is about.

Invariant: a number that comes from the store is never combined with increments that may be part of it already. A key
that is incremented in a layer under way is therefore read only after that layer is stored, which takes one commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import index
from threading import get_ident
from typing import Any, NoReturn

from ...errors import InvalidConfig, StateRefused
from ...state.limits import VALUE_BYTES_MAX, check_key, check_put
from ...state.values import COUNTER_BYTES, COUNTER_MAX, COUNTER_MIN, counter_bytes, counter_number
from ..stopping import InstanceStopping
from .layer import Layer

READ_AHEAD_KEYS_MAX = 10_000
READ_AHEAD_BYTES_MAX = 1024 * 1024
READ_AHEAD_FACTOR = 4
LAYER_BYTES_MAX = 1024 * 1024  # a piece is shipped soon after its changes are larger
LAYER_KEYS_MAX = 10_000
SUSPECTS_MAX = 1000
ROW_BYTES = 64  # what a change costs beside its value, for the bounds only
_SURELY_SHORT = 1024  # characters of a key; four bytes each fit
NO_THREAD = 0

Content = bytes | int | None
"""What is under a key: bytes, a number if it is a counter, or nothing."""


class StateSession:
    """The state of one instance as its function sees it."""

    def __init__(self, read: Callable[[Sequence[bytes]], Sequence[Content]]) -> None:
        """Begin without changes.

        Args:
            read: asks the store; called on the function's thread, may block, raises what the function shall see.
        """
        self._read = read
        self._values: dict[str, bytes | None] = {}
        self._increments: dict[str, int] = {}
        self._written_bytes = 0
        self._known: dict[str, Content] = {}  # of the store and the layers, without the fresh changes
        self._asked: dict[str, None] = {}  # in this unit
        self._recent: dict[str, int] = {}  # keys of the last units with what they cost to read, newest last
        self._ahead: dict[str, None] = {}  # what the next question asks for, too
        self._suspects: dict[str, None] = {}
        self._layers: dict[int, Layer] = {}
        self._layer_count = 0
        self._forgotten = threading.Condition(threading.Lock())
        self._is_stopping = False
        self._thread = get_ident()

    # -- whose calls are taken -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take calls of this thread, and of no other, until `end`."""
        self._thread = get_ident()

    def end(self) -> None:
        """Take no calls until `begin`."""
        self._thread = NO_THREAD

    def _refuse(self, method: str) -> NoReturn:
        raise InvalidConfig(outside_of_call(method, "what it reads and writes belongs to the message at hand"))

    # -- what the context's methods are ---------------------------------------------------------------------------

    def incr_counter(self, key: str, amount: int) -> None:
        """Add to a counter."""
        # No exception for a key that is new: a word count meets many of them in each batch.
        if get_ident() != self._thread:
            self._refuse("incr_counter")
        if type(amount) is not int or not COUNTER_MIN <= amount <= COUNTER_MAX:
            amount = _number(amount)
        if key in self._increments:
            self._increments[key] += amount
        else:
            self._begin_counting(key, amount)

    def _begin_counting(self, key: str, amount: int) -> None:
        """Take the first increment of a key since the last `take` or write."""
        _check_key(key)
        if key in self._values:
            _sum(key, self._values[key], amount)  # refuses what is no number
        elif key in self._known or key in self._suspects:
            _sum(key, self._look_up(key), amount)
        self._increments[key] = amount

    def get_counter(self, key: str) -> int:
        """Return a counter, 0 if there is none."""
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
        if self._increments:
            self._increments.pop(key, None)
        self._values[key] = data
        self._written_bytes += len(data)

    def get_state(self, key: str) -> bytes | None:
        """Return a value, None if there is none; of a counter its 8 bytes, the highest first."""
        if get_ident() != self._thread:
            self._refuse("get_state")
        content = self._look_up(key)
        return counter_bytes(content) if isinstance(content, int) else content

    def delete_state(self, key: str) -> None:
        """Delete a value or counter, if it is there."""
        if get_ident() != self._thread:
            self._refuse("delete_state")
        _check_key(key)
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
        """Make known what is under a key when all layers are stored."""
        layers = list(self._layers.values())
        base: Content = None
        is_written = is_counted = False
        for layer in layers:
            if key in layer.values:
                base, is_written = layer.values[key], True
            if key in layer.increments:
                is_counted = True
                if is_written:
                    base = _sum(key, base, layer.increments[key])
        if is_written:
            self._known[key] = base
            return
        if is_counted:
            self._wait_for_layers()
            layers = []
        names = [key]
        for name in self._ahead:
            pending = any(name in layer.values or name in layer.increments for layer in layers)
            if not pending and name != key and name not in self._known:
                names.append(name)
        self._known.update(zip(names, self._read([name.encode() for name in names]), strict=True))
        for name in names:
            self._ahead.pop(name, None)

    def _wait_for_layers(self) -> None:
        """Wait until the store has everything that was taken.

        Raises:
            InstanceStopping: the instance is being stopped.
        """
        with self._forgotten:
            while self._layers:
                if self._is_stopping:
                    raise InstanceStopping
                self._forgotten.wait()

    # -- the way to the store -------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the fresh changes are so many or so large that they should be taken now."""
        return (
            self._written_bytes > LAYER_BYTES_MAX
            or len(self._increments) > LAYER_KEYS_MAX
            or len(self._values) > LAYER_KEYS_MAX
        )

    def take(self, *, ends_unit: bool = True) -> Layer | None:
        """Return the fresh changes as a layer, None if there are none; reads see them until it is forgotten.

        Args:
            ends_unit: read the store anew from now on.
        """
        if self._asked and ends_unit:
            self._plan_ahead()
        if not self._increments and not self._values:
            return None
        if self._known:
            self._know_of_fresh_changes()
        self._layer_count += 1
        size = self._written_bytes + ROW_BYTES * (len(self._increments) + len(self._values))
        layer = Layer(self._layer_count, self._values, self._increments, size)
        self._layers[layer.number] = layer
        self._values, self._increments, self._written_bytes = {}, {}, 0
        return layer

    def _know_of_fresh_changes(self) -> None:
        self._known.update(self._values)
        for key in self._increments.keys() & self._known.keys():
            try:
                self._known[key] = _sum(key, self._known[key], self._increments[key])
            except StateRefused:
                del self._known[key]  # what the store will refuse; it was incremented before it was read

    def _plan_ahead(self) -> None:
        recent, known = self._recent, self._known
        for key in self._asked:
            recent.pop(key, None)
            content = known.get(key)
            recent[key] = ROW_BYTES + (len(content) if isinstance(content, bytes) else 0)
        keys_left = min(READ_AHEAD_FACTOR * len(self._asked), READ_AHEAD_KEYS_MAX)
        bytes_left = READ_AHEAD_BYTES_MAX
        self._ahead = {}
        for key in reversed(recent):
            keys_left -= 1
            bytes_left -= recent[key]
            if keys_left < 0 or bytes_left < 0:
                break
            self._ahead[key] = None
        while len(recent) > READ_AHEAD_KEYS_MAX:
            del recent[next(iter(recent))]
        self._asked = {}
        known.clear()

    def forget(self, layer: Layer) -> None:
        """Drop a layer that is stored, or that never will be (from any thread)."""
        with self._forgotten:
            self._layers.pop(layer.number, None)
            self._forgotten.notify_all()

    def suspect(self, key: bytes) -> None:
        """Look at a key from now on before it is incremented (from any thread)."""
        self._suspects[key.decode(errors="replace")] = None
        if len(self._suspects) > SUSPECTS_MAX:
            self._suspects.pop(next(iter(self._suspects)))

    def stop(self) -> None:
        """Let no read wait for the store any more (from any thread)."""
        with self._forgotten:
            self._is_stopping = True
            self._forgotten.notify_all()


def outside_of_call(method: str, why: str) -> str:
    """Return the refusal of a method of the context, called where no message is at hand."""
    return (
        f"context.{method} was called on thread {threading.current_thread().name!r}, which is not inside a call of the"
        f" function: {why}; call it where the function is called, on its own thread, before it returns"
    )


def _sum(key: str, content: Content, amount: int) -> int:
    """Return the number under a key with an amount added."""
    number = counter_number(content) if isinstance(content, bytes) else content or 0
    if number is None:
        assert isinstance(content, bytes)
        raise StateRefused(
            f"state {key!r} holds {len(content)} bytes and is no counter, which has {COUNTER_BYTES}; use another key"
            " for the counter, or delete this one first",
            key.encode(),
        )
    number += amount
    if not COUNTER_MIN <= number <= COUNTER_MAX:
        raise StateRefused(f"counter {key!r} would be {number}, which does not fit into 64 bits", key.encode())
    return number


def _number(amount: Any) -> int:
    try:
        number = index(amount)
    except TypeError:
        raise TypeError(f"the amount of a counter is an int, not {type(amount).__name__}") from None
    if not COUNTER_MIN <= number <= COUNTER_MAX:
        raise OverflowError(f"amount {number} of a counter does not fit into 64 bits")
    return number


def _data(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise StateRefused(f"the value of a state has no UTF-8 form: {error}; give bytes") from error
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"the value of a state is str or bytes, not {type(value).__name__}; make it text, such as JSON")


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"the key of a state is a str, not {type(key).__name__}")
    if not 0 < len(key) <= _SURELY_SHORT or not key.isascii():
        try:
            check_key(key.encode())
        except UnicodeEncodeError as error:
            raise StateRefused(f"the state key {ascii(key)[:80]} has no UTF-8 form: {error}") from error
