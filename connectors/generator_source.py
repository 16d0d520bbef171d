"""The ``generator`` source creates records with random typed fields at a given rate.

A record depends only on the seed and its number, so the same seed always produces the same records. A record's time is
the time of the first record plus the record number divided by the rate.

Record numbers are assigned to instances in turn: with three instances, the second creates the numbers 1, 4, 7 and so
on. The position is the number of turns that an instance has completed. After a change of parallelism, assignment
restarts after the highest number created so far, and the new instances share the numbers that slower instances had not
created by then.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NamedTuple, TypeAlias

from ..api.connector import EndOfInput, Position, Record, Source, SourceContext
from ..api.connector_config import Refusal, Unsupported, option
from ..errors import InvalidConfig

_PAUSE_S = 0.02
_BATCH_MAX = 1000
_BEHIND_S = 5.0
"""Maximum backlog that the generator catches up on after records were not accepted, in seconds."""
_NAMES = ("Ada", "Bo", "Chen", "Dina", "Emil", "Fatima", "Göran", "Hye-jin", "Ines", "José", "Kofi", "Łucja")
_FAMILIES = ("Abe", "Berg", "Costa", "Diaz", "Eze", "Fischer", "Gupta", "Håkansson", "Ivanova", "Jones", "Kim", "Lê")
_WORDS = (
    "amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "harbour", "island", "jasper", "kelp", "lagoon",
)  # fmt: skip
_CITIES = ("Accra", "Bergen", "Córdoba", "Dakar", "Essen", "Fukuoka", "Graz", "Hanoi", "İzmir", "Jena", "Kyiv", "Lima")
_COUNTRIES = ("AR", "AT", "BR", "DE", "GH", "JP", "NO", "PE", "SN", "TR", "UA", "VN")

Maker: TypeAlias = Callable[[random.Random, int, datetime], Any]
"""Creates a value from a random number generator, the record number and the record time."""


@dataclass
class GeneratorConfig:
    """Settings of the ``generator`` source."""

    unsupported: ClassVar[Unsupported] = {
        "sleepBetweenMessages": Refusal("set rate, in records per second, instead: 20 for a record every 50 ms"),
    }

    fields: dict[str, Any] = option(
        "Field types by name: sequence, integer, number, boolean, text, word, name, email, city, country, ip, uuid, "
        "time, date or null; a range such as 1..100 or 0.5..2.5; or choices such as red|green. A type that ends in ? "
        "is sometimes null. An object of types creates a nested object, and a list with one type creates a list of one "
        "to three values.",
        default={"id": "sequence", "name": "name", "amount": "1..1000", "at": "time"},
    )
    key: str = option("Field whose value becomes the record key; empty for no key.", default="")
    rate: float = option("Records per second; 0 for unlimited.", default=10.0, limits=(0, 10_000_000))
    count: int = option("Total number of records; 0 for unlimited.", default=0, limits=(0, None))
    seed: int = option("Random seed. The same seed produces the same records.", default=0)
    start: str = option(
        "Time of the first record, such as 2026-01-01T00:00:00Z. If empty, records have the current time or, with "
        "EFFECTIVELY_ONCE, times from 1970 on.",
        default="",
    )


class GeneratorSource(Source):
    """Creates JSON records with random typed fields at a given rate."""

    config = GeneratorConfig

    def check(self, config: GeneratorConfig) -> None:
        """Validate the configuration."""
        if not config.fields:
            raise InvalidConfig("fields must not be empty")
        _object("", config.fields)
        if config.key and config.key not in config.fields:
            raise InvalidConfig(f"invalid key {config.key!r}: expected a field name: {', '.join(config.fields)}")
        _time(config.start)

    def not_effectively_once(self, config: GeneratorConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return ""

    def open(self, config: GeneratorConfig, context: SourceContext) -> None:
        """Open the connector."""
        self._config = config
        self._make = _object("", config.fields)
        self._is_clock = not config.start and not context.is_exact
        self._start = _time(config.start)
        self._gap = timedelta(seconds=1 / config.rate if config.rate else 0.001)
        self._turns = _Turns.of(context.position)
        self._step = context.parallelism
        self._first = context.instance_id
        self._due_s = time.monotonic()

    def read(self) -> list[Record] | None:
        """Return the next records, or None if none are available yet."""
        config = self._config
        left = self._left()
        if not left:
            raise EndOfInput(f"created all {config.count} records")
        due = _BATCH_MAX
        if config.rate:
            gap_s = self._step / config.rate
            now_s = time.monotonic()
            self._due_s = max(self._due_s, now_s - _BEHIND_S)
            if self._due_s > now_s:
                time.sleep(min(self._due_s - now_s, _PAUSE_S))
                return None
            due = min(int((now_s - self._due_s) / gap_s) + 1, _BATCH_MAX)
            self._due_s += due * gap_s
        numbers = left[:due]
        self._turns = self._turns.behind(numbers)
        return list(map(self._record, numbers))

    def _left(self) -> range:
        """Return the next record numbers; empty at the end."""
        while self._turns.rest:
            first, stop, step = self._turns.rest[0]
            if numbers := range(first, min(stop, self._config.count or stop), step):
                return numbers
            self._turns = self._turns._replace(rest=self._turns.rest[1:])
        first = self._turns.next_of(self._first, self._step)
        return range(first, self._config.count or first + _BATCH_MAX * self._step, self._step)

    def _record(self, number: int) -> Record:
        rng = random.Random(self._config.seed << 64 ^ number)  # noqa: S311 (made-up data)
        at = datetime.now(UTC) if self._is_clock else self._start + self._gap * number
        value = self._make(rng, number, at)
        key = self._config.key
        text = json.dumps(value, ensure_ascii=False)
        of_key = value[key] if key else None
        return Record(text, of_key if of_key is None else str(of_key), event_time_ms=int(at.timestamp() * 1000))

    def snapshot(self) -> Position:
        """Return the current position."""
        made = self._turns
        return made.turns if made == _Turns(turns=made.turns) else made._asdict()

    def divide(self, positions: Sequence[Position], instance_id: int, parallelism: int) -> Position:
        """Return one instance's position after the parallelism has changed."""
        count = len(positions)
        turns = list(map(_Turns.of, positions))
        following = [one.next_of(number, count) for number, one in enumerate(turns)]
        frontier = max(following)
        rest = [part for one in turns for part in one.rest]
        rest += [(first, frontier, count) for first in following if first < frontier]
        return _Turns(frontier, 0, rest[instance_id::parallelism])._asdict()


class _Turns(NamedTuple):
    """Progress of an instance.

    Attributes:
        base: record number at which assignment started.
        turns: number of turns since then.
        rest: ranges of record numbers below the base to create first, each as start, stop and step.
    """

    base: int = 0
    turns: int = 0
    rest: Sequence[tuple[int, int, int]] = ()

    @classmethod
    def of(cls, position: Position) -> _Turns:
        """Parse a position: None, a number of turns, or all attributes."""
        return cls(**position) if isinstance(position, dict) else cls(turns=int(position or 0))

    def next_of(self, instance_id: int, parallelism: int) -> int:
        """Return the record number of the next turn."""
        return self.base + instance_id + self.turns * parallelism

    def behind(self, numbers: range) -> _Turns:
        """Return the progress after these numbers, which are the first of the rest or of the next turns."""
        if not self.rest:
            return self._replace(turns=self.turns + len(numbers))
        (_, stop, step), *others = self.rest
        first = numbers[-1] + step
        return self._replace(rest=[(first, stop, step), *others] if first < stop else others)


def _time(text: str) -> datetime:
    """Parse a time; an empty string means 1970."""
    try:
        at = datetime.fromisoformat(text or "1970-01-01T00:00:00Z")
    except ValueError as error:
        raise InvalidConfig(f"invalid start {text!r}: expected a time such as 2026-01-01T00:00:00Z") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _object(name: str, fields: Mapping[str, Any]) -> Maker:
    """Return a `Maker` of objects with these fields. ``name`` is the object's name followed by a dot."""
    makers = [(key, _maker(name + key, kind)) for key, kind in fields.items()]
    return lambda rng, number, at: {key: make(rng, number, at) for key, make in makers}


def _maker(name: str, kind: Any) -> Maker:
    """Return a `Maker` of values for a field."""
    if isinstance(kind, dict) and kind:
        return _object(f"{name}.", kind)
    if isinstance(kind, list) and len(kind) == 1:
        make = _maker(name, kind[0])
        return lambda rng, number, at: [make(rng, number, at) for _ in range(rng.randint(1, 3))]
    if not isinstance(kind, str):
        raise InvalidConfig(
            f"field {name!r}: invalid type {kind!r}: expected a type name, an object of types, or a list with one type"
        )
    if kind.endswith("?"):
        inner = _maker(name, kind[:-1])
        return lambda rng, number, at: None if rng.random() < 0.2 else inner(rng, number, at)
    if kind in _MAKERS:
        return _MAKERS[kind]
    if ".." in kind:
        return _range(name, kind)
    if "|" in kind:
        words = kind.split("|")
        return lambda rng, number, at: rng.choice(words)
    raise InvalidConfig(f"field {name!r}: unknown type {kind!r}: expected {', '.join(_MAKERS)}, 1..100 or red|green")


def _range(name: str, kind: str) -> Maker:
    low, _, high = kind.partition("..")
    try:
        if "." not in low and "." not in high:
            first, last = int(low), int(high)
            if first <= last:
                return lambda rng, number, at: rng.randint(first, last)
        else:
            least, most = float(low), float(high)
            if least <= most < float("inf"):
                digits = max(len(part.partition(".")[2]) for part in (low, high))
                return lambda rng, number, at: round(rng.uniform(least, most), digits)
    except ValueError:
        pass
    raise InvalidConfig(f"field {name!r}: invalid range {kind!r}: expected a range such as 1..100 or 0.5..2.5")


_MAKERS: dict[str, Maker] = {
    "sequence": lambda rng, number, at: number,
    "integer": lambda rng, number, at: rng.getrandbits(31),
    "number": lambda rng, number, at: round(rng.random() * 1000, 3),
    "boolean": lambda rng, number, at: rng.random() < 0.5,
    "text": lambda rng, number, at: " ".join(rng.choices(_WORDS, k=rng.randint(2, 8))),
    "word": lambda rng, number, at: rng.choice(_WORDS),
    "name": lambda rng, number, at: f"{rng.choice(_NAMES)} {rng.choice(_FAMILIES)}",
    "email": lambda rng, number, at: f"{rng.choice(_WORDS)}.{number}@example.com",
    "city": lambda rng, number, at: rng.choice(_CITIES),
    "country": lambda rng, number, at: rng.choice(_COUNTRIES),
    "ip": lambda rng, number, at: f"198.51.100.{rng.randint(1, 254)}",
    "uuid": lambda rng, number, at: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    "time": lambda rng, number, at: at.isoformat(timespec="milliseconds"),
    "date": lambda rng, number, at: at.date().isoformat(),
    "null": lambda rng, number, at: None,
}
