"""The source ``generator``: what records it makes, and how many."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from magnetar.api.connector import EndOfInput, Record
from magnetar.api.connector_config import read_config
from magnetar.client.client import AsyncClient
from magnetar.connectors.generator_source import GeneratorConfig, GeneratorSource
from magnetar.errors import InvalidConfig
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.exact import all_messages, exact_spec_maker, run_and_kill
from tests.support.instances import MakeSpec, client, make_spec, server, topic
from tests.support.servers import Server, running

__all__ = ["client", "make_spec", "server", "topic"]


def opened(
    position: Any = None, *, instance_id: int = 0, parallelism: int = 1, is_exact: bool = True, **configs: Any
) -> GeneratorSource:
    source = GeneratorSource()
    config = read_config(GeneratorConfig, {"rate": 0} | configs)
    source.check(config)
    context: Any = SimpleNamespace(
        position=position, instance_id=instance_id, parallelism=parallelism, is_exact=is_exact
    )
    source.open(config, context)
    return source


def made(source: GeneratorSource) -> list[Record]:
    """Return all records up to the end."""
    found: list[Record] = []
    while True:
        try:
            found += source.read() or []
        except EndOfInput:
            return found


def test_values_have_their_types() -> None:
    fields = {
        "id": "sequence", "i": "integer", "n": "number", "b": "boolean", "t": "text", "w": "word", "name": "name",
        "e": "email", "c": "city", "l": "country", "ip": "ip", "u": "uuid", "at": "time", "d": "date", "z": "null",
        "r": "-5..5", "f": "0.5..2.25", "o": "red|green", "maybe": "1..9?", "in": {"x": "word", "y": ["1..3"]},
    }  # fmt: skip
    found = [json.loads(record.value) for record in made(opened(count=500, fields=fields, start="2026-01-01"))]
    for number, value in enumerate(found):
        assert list(value) == list(fields)
        assert value["id"] == number
        assert isinstance(value["i"], int)
        assert isinstance(value["n"], float)
        assert isinstance(value["b"], bool)
        assert re.fullmatch(r"\S+ \S+", value["name"])
        assert re.fullmatch(r"\w+\.\d+@example\.com", value["e"])
        assert re.fullmatch(r"[0-9a-f-]{36}", value["u"])
        assert datetime.fromisoformat(value["at"]).date().isoformat() == value["d"] == "2026-01-01"
        assert value["z"] is None
        assert -5 <= value["r"] <= 5
        assert 0.5 <= value["f"] <= 2.25
        assert value["o"] in ("red", "green")
        assert value["maybe"] in (None, *range(1, 10))
        assert set(value["in"]["y"]) <= {1, 2, 3}
    assert {value["maybe"] is None for value in found} == {True, False}
    assert {value["r"] for value in found} == set(range(-5, 6))


def test_records_are_the_same_with_the_same_seed_and_from_every_position() -> None:
    all_of_them = made(opened(count=3000, seed=7, key="id"))
    assert made(opened(count=3000, seed=7, key="id")) == all_of_them
    assert made(opened(1234, count=3000, seed=7, key="id")) == all_of_them[1234:]
    assert made(opened(count=3000, seed=8, key="id")) != all_of_them
    assert [record.key for record in all_of_them[:3]] == ["0", "1", "2"]
    assert all_of_them[1].event_time_ms == 1


def test_instances_share_the_records() -> None:
    shares = [made(opened(instance_id=number, parallelism=3, count=100)) for number in range(3)]
    assert [len(share) for share in shares] == [34, 33, 33]
    numbers = sorted(json.loads(record.value)["id"] for share in shares for record in share)
    assert numbers == list(range(100))


@pytest.mark.parametrize("rate", [50, 5000])
def test_records_come_at_their_rate(rate: int) -> None:
    source = opened(rate=rate)
    began_s = time.monotonic()
    found = 0
    while time.monotonic() - began_s < 0.5:
        found += len(source.read() or [])
    assert found <= rate * (time.monotonic() - began_s) + 1
    assert found >= rate * 0.5 * 0.5


def test_times_are_those_of_the_clock_unless_they_have_to_come_again() -> None:
    (record,) = made(opened(count=1, is_exact=False))
    assert abs(record.event_time_ms / 1000 - time.time()) < 60
    (record,) = made(opened(count=1, is_exact=False, start="2026-01-01T00:00:00+01:00"))
    assert json.loads(record.value)["at"] == "2026-01-01T00:00:00.000+01:00"


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"fields": {}}, "fields must not be empty"),
        ({"fields": {"a": "colour"}}, "field 'a': unknown type 'colour': expected sequence, integer"),
        ({"fields": {"a": {"b": "colour"}}}, "field 'a.b': unknown type 'colour'"),
        ({"fields": {"a": 1}}, "field 'a': invalid type 1: expected a type name, an object of types, or a list"),
        ({"fields": {"a": []}}, "field 'a': invalid type []"),
        ({"fields": {"a": "9..1"}}, "field 'a': invalid range '9..1': expected a range such as 1..100"),
        ({"fields": {"a": "1..x"}}, "field 'a': invalid range '1..x': expected a range such as 1..100"),
        ({"fields": {"a": "0.1..inf"}}, "field 'a': invalid range '0.1..inf'"),
        ({"key": "none"}, "invalid key 'none': expected a field name: id, name, amount, at"),
        ({"start": "today"}, "invalid start 'today': expected a time such as 2026-01-01T00:00:00Z"),
        ({"rate": -1}, "rate must be at least 0"),
    ],
)
def test_bad_configs_are_refused(configs: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(error)):
        opened(**configs)


@pytest.fixture(scope="module")
def state_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running("state-store", tmp_path_factory.mktemp("state")) as server:
        yield str(server.addresses["stateStorageServiceUrl"])


async def test_each_record_is_there_once_when_the_instance_is_killed(
    client: AsyncClient, server: Server, make_spec: MakeSpec, state_url: str, topic: str
) -> None:
    seed = 3
    print(f"seed {seed}")
    rng, runtime, total = random.Random(seed), ProcessRuntime(), 2000
    configs: dict[str, Any] = {"rate": 2000, "count": total, "seed": 5}
    source = {"builtin": "generator", "configs": json.dumps(configs)}
    spec = exact_spec_maker(make_spec, server, state_url)(
        "", source=source, componentType=records.FunctionDetails.SOURCE
    )
    kills = await run_and_kill(runtime, spec, client, f"{topic}-out", rng, total)
    await runtime.close()
    expected = [record.value.encode() for record in made(opened(**configs))]
    assert await all_messages(client, f"{topic}-out") == expected
    assert kills > 1
