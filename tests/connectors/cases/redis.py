"""Cases of ``redis`` and ``redis-streams``."""

from __future__ import annotations

import json
from typing import Any

import pulsar

from tests.connectors.cases.base import SinkCase, SourceCase
from tests.connectors.servers.redis import RedisServer

_BAD_HOSTS: list[tuple[dict[str, Any], str]] = [
    ({"redisHosts": None}, "redisHosts is missing"),
    ({"redisHosts": "redis://127.0.0.1"}, "invalid redisHosts entry 'redis://127.0.0.1': expected host:port"),
    ({"redisHosts": "127.0.0.1:1"}, "Connection refused"),
    ({"redisPassword": "wrong"}, "rejected the user name or password"),
    ({"redisPassword": None}, "rejected the user name or password"),
    ({"redisDatabase": 99}, "DB index is out of range"),
    ({"clientMode": "Sentinel"}, "clientMode must be one of Standalone, Cluster"),
    ({"redisHost": "127.0.0.1"}, "redisHost"),
]


class _Redis:
    server_process: RedisServer

    def prepare(self) -> None:
        with self.server_process.client() as client:
            client.flushall()

    def hosts(self) -> dict[str, object]:
        server = self.server_process
        return {"redisHosts": f"127.0.0.1:{server.port}", "redisPassword": server.password}


class RedisValues(_Redis, SinkCase):
    """Values by key; each message has a different key."""

    connector = "redis"
    server = RedisServer
    is_exact = True
    bad_configs = [*_BAD_HOSTS, ({"key": "{id}"}, "unknown placeholder {id}")]

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return {**self.hosts(), "key": "m:{message_id}"}

    def read_back(self) -> list[tuple[int, str]]:
        """Override `SinkCase.read_back`."""
        with self.server_process.client() as client:
            keys = client.keys("m:*")
            values = client.mget(keys) if keys else []
        found = [json.loads(value) for value in values if value is not None]
        return [(value["id"], value["text"]) for value in found]


class RedisHashes(_Redis, SinkCase):
    """Hashes by key."""

    connector = "redis"
    server = RedisServer
    is_exact = True

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return {**self.hosts(), "command": "HSET", "key": "m:{message_id}"}

    def bad_record(self) -> bytes:
        """Override `SinkCase.bad_record`."""
        return b"[1, 2]"

    def read_back(self) -> list[tuple[int, str]]:
        """Override `SinkCase.read_back`."""
        with self.server_process.client() as client:
            pipe = client.pipeline(transaction=False)
            for key in client.keys("m:*"):
                pipe.hmget(key, "id", "text", "nothing")
            found = pipe.execute()
        assert all(nothing == b"null" for _, _, nothing in found)
        return [(int(number), text.decode()) for number, text, _ in found]


class RedisStream(_Redis, SinkCase):
    """Entries of one stream."""

    connector = "redis"
    server = RedisServer
    is_ordered = True

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return {**self.hosts(), "command": "XADD", "key": "out"}

    def read_back(self) -> list[tuple[int, str]]:
        """Override `SinkCase.read_back`."""
        with self.server_process.client() as client:
            entries = client.xrange("out")
        found = []
        for _, fields in entries:
            value = json.loads(fields[b"value"])
            if value["id"] % 3:
                assert fields[b"number"] == str(value["id"]).encode()
            assert (b"key" in fields) == bool(value["id"] % 10)
            found.append((value["id"], value["text"]))
        return found


class RedisStreamsSourceCase(_Redis, SourceCase):
    """Entries of one stream."""

    connector = "redis-streams"
    server = RedisServer
    bad_configs = [*_BAD_HOSTS, ({"streams": None}, "streams is missing"), ({"claimIdleMs": 1}, "claimIdleMs")]

    def configs(self) -> dict[str, object]:
        """Override `Case.configs`."""
        return {**self.hosts(), "streams": "in", "claimIdleMs": 5000}

    def feed(self, records: list[tuple[int, str]]) -> None:
        """Override `SourceCase.feed`."""
        with self.server_process.client() as client:
            pipe = client.pipeline(transaction=False)
            for number, text in records:
                fields = {"value": text, "number": str(number), b"k\xff": b"\xff"}
                pipe.xadd("in", fields if number % 10 == 0 else {**fields, "key": f"schlüssel-{number}"})
            pipe.execute()

    def feed_bad(self) -> None:
        """Override `SourceCase.feed_bad`: an entry that is deleted before anyone reads it to the end."""
        with self.server_process.client() as client:
            client.xdel("in", client.xadd("in", {"value": "gone"}))

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        """Override `SourceCase.identify`."""
        properties = message.properties()
        number = int(properties["number"])
        assert properties["k\\xff"] == "\\xff"
        assert message.partition_key() == ("" if number % 10 == 0 else f"schlüssel-{number}")
        return number, message.data().decode()
