"""The source ``generator``: made-up records of typed fields, at a rate."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..api.connector import EndOfInput, Record, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig

_BATCH_S = 0.05
_BATCH_MAX = 1000
_NAMES = ("Ada", "Bo", "Chen", "Dina", "Emil", "Fatima", "Göran", "Hye-jin", "Ines", "José", "Kofi", "Łucja")
_WORDS = (
    "amber",
    "brook",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "harbour",
    "island",
    "jasper",
    "kelp",
    "lagoon",
)


@dataclass
class GeneratorConfig:
    """What records look like, and how many there are."""

    fields: dict[str, str] = option(
        "Names of fields and their types: sequence, integer, number, boolean, text, name, email, uuid, time, or"
        " a range such as 1..100, or words to choose from such as red|green.",
        default={"id": "sequence", "name": "name", "amount": "1..1000", "at": "time"},
    )
    key: str = option("The field whose value is the key; empty for none.", default="")
    rate: float = option("Records a second; 0 for as many as possible.", default=10.0, limits=(0, 10_000_000))
    count: int = option("How many records there are; 0 for no end.", default=0, limits=(0, None))
    seed: int = option("Of the random numbers: records are the same with the same seed.", default=0)


class GeneratorSource(Source):
    """Made-up records of typed fields at a rate, as JSON."""

    config = GeneratorConfig

    def open(self, config: GeneratorConfig, context: SourceContext) -> None:
        """See `Connector.open`."""
        if config.key and config.key not in config.fields:
            raise InvalidConfig(f"key {config.key} is none of the fields {', '.join(config.fields)}")
        self._config = config
        self._makers = {name: _maker(name, kind) for name, kind in config.fields.items()}
        self._number = int(context.position or 0)
        self._step = context.parallelism
        self._first = context.instance_id
        self._began_s, self._began_at = time.monotonic(), self._number

    def read(self) -> list[Record] | None:
        """See `Source.read`."""
        config = self._config
        due = _BATCH_MAX
        if config.rate:
            time.sleep(_BATCH_S)
            share = config.rate / self._step
            due = min(int((time.monotonic() - self._began_s) * share) - (self._number - self._began_at), 100_000)
        records: list[Record] = []
        for _ in range(due):
            number = self._number * self._step + self._first
            if config.count and number >= config.count:
                if not records:
                    raise EndOfInput(f"all {config.count} records are made")
                break
            self._number += 1
            records.append(self._record(number))
        return records

    def _record(self, number: int) -> Record:
        rng = random.Random(self._config.seed << 32 ^ number)
        value = {name: make(rng, number) for name, make in self._makers.items()}
        key = self._config.key
        return Record(json.dumps(value, ensure_ascii=False), str(value[key]) if key else None)

    def snapshot(self) -> int:
        """See `Source.snapshot`."""
        return self._number


def _maker(name: str, kind: str) -> Callable[[random.Random, int], Any]:
    """Return what makes the values of a field."""
    if kind in _MAKERS:
        return _MAKERS[kind]
    low, dots, high = kind.partition("..")
    if dots:
        try:
            first, last = int(low), int(high)
        except ValueError:
            first, last = 1, 0
        if first > last:
            raise InvalidConfig(f"field {name}: {kind!r} is no range such as 1..100")
        return lambda rng, _: rng.randint(first, last)
    if "|" in kind:
        words = kind.split("|")
        return lambda rng, _: rng.choice(words)
    raise InvalidConfig(f"field {name}: {kind!r} is no type; known are {', '.join(_MAKERS)}, 1..100 and red|green")


_MAKERS: dict[str, Callable[[random.Random, int], Any]] = {
    "sequence": lambda rng, number: number,
    "integer": lambda rng, number: rng.getrandbits(31),
    "number": lambda rng, number: round(rng.random() * 1000, 3),
    "boolean": lambda rng, number: rng.random() < 0.5,
    "text": lambda rng, number: " ".join(rng.choices(_WORDS, k=rng.randint(2, 8))),
    "name": lambda rng, number: rng.choice(_NAMES),
    "email": lambda rng, number: f"{rng.choice(_WORDS)}.{number}@example.com",
    "uuid": lambda rng, number: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    "time": lambda rng, number: datetime.now(UTC).isoformat(timespec="milliseconds"),
}
