"""The connectors redis and redis-streams against a real server: what is theirs alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from magnetar.api.connector import Connector, Record, RecordRefused, Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors.redis_sink import RedisSink, RedisSinkConfig
from magnetar.connectors.redis_streams_source import RedisStreamsConfig, RedisStreamsSource
from magnetar.errors import InvalidConfig

from tests.connectors.direct import Direct, DirectContext, records_of
from tests.connectors.servers.redis import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.connectors


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer.running() as server:
        yield server


@pytest.fixture(autouse=True)
def _empty(server: RedisServer) -> None:
    with server.client() as client:
        client.flushall()


def hosts(server: RedisServer) -> dict[str, object]:
    return {"redisHosts": f"127.0.0.1:{server.port}", "redisPassword": server.password}


class OneNodeCluster(RedisServer):
    """A cluster of one node, which has all slots."""

    def command(self) -> Sequence[str]:
        """Override `RealServer.command`."""
        return [*super().command(), "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]

    def has_slots(self) -> bool:
        with self.client() as client:
            return "cluster_state:ok" in str(client.execute_command("CLUSTER INFO")).replace("': '", ":")


def sink(server: RedisServer, **configs: object) -> Direct:
    return Direct(RedisSink(), {**hosts(server), **configs})


def source(server: RedisServer, instance_id: int = 0, **configs: object) -> Direct:
    return Direct(RedisStreamsSource(), {**hosts(server), "streams": "s", **configs}, DirectContext(instance_id, 2))


def test_sink_sets_by_key_and_a_null_value_deletes(server: RedisServer) -> None:
    redis = sink(server)
    redis.write([*records_of(3), Record(b"first", "k"), Record(b"second", "k"), Record(b"of no key"), Record(b"")])
    with server.client() as client:
        assert client.mget("key-0", "key-2", "k", "") == [b"value 0", b"value 2", b"second", b""]
        redis.write([Record(None, "k"), Record(b"again", "key-0")])
        assert client.mget("k", "key-0") == [None, b"again"]
    redis.close()


def test_sink_refuses_one_record_and_adds_the_others_once(server: RedisServer) -> None:
    redis = sink(server, command="XADD", key="{properties.to}")
    with server.client() as client:
        client.set("text", "no stream")
        records = records_of(10)
        for number, record in enumerate(records):
            record.properties = {"to": "text" if number == 4 else "s", "value": "of a property"}
        with pytest.raises(RecordRefused, match="WRONGTYPE") as refused:
            redis.write(records)
        assert (refused.value.index, refused.value.written) == (4, 4)
        redis.write(records[5:])
        entries = client.xrange("s")
        assert [fields[b"value"] for _, fields in entries] == [f"value {n}".encode() for n in range(10) if n != 4]
        assert entries[0][1][b"properties.value"] == b"of a property"
        assert entries[0][1][b"key"] == b"key-0"
    redis.close()


def test_sink_refuses_what_a_hash_cannot_hold(server: RedisServer) -> None:
    redis = sink(server, command="HSET")
    redis.write([Record('{"a": 1, "b": "ü", "c": null, "d": [1]}', "h")])
    with server.client() as client:
        assert client.hgetall("h") == {b"a": b"1", b"b": "ü".encode(), b"c": b"null", b"d": b"[1]"}
    for value in (b"{no json", b"[1]", b"{}", b"\xff"):
        with pytest.raises(RecordRefused, match="JSON"):
            redis.write([Record(value, "h")])
    redis.close()


def test_sink_says_that_memory_is_full_and_goes_on_when_it_is_not(server: RedisServer) -> None:
    redis = sink(server)
    redis.write(records_of(1))
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
        try:
            with pytest.raises(Retry, match="maxmemory"):
                redis.connector.write_batch(records_of(2))
        finally:
            client.config_set("maxmemory", "0")
    redis.write(records_of(2))
    redis.close()


def test_bad_configurations_are_named() -> None:
    def fault(connector: Connector, **given: object) -> str:
        with pytest.raises(InvalidConfig) as refused:
            connector.check(read_config(connector.config, {"redisHosts": "localhost", **given}))
        return str(refused.value)

    for hosts in ("", "a:b", ":1", "redis://x:1", "h:70000", "a:1,b:2"):
        assert "redisHosts" in fault(RedisSink(), redisHosts=hosts)
    assert "unknown placeholder {nothing}" in fault(RedisSink(), key="{nothing}")
    assert "expireSeconds" in fault(RedisSink(), expireSeconds=5, command="HSET")
    assert "streamMaxLength" in fault(RedisSink(), streamMaxLength=5)
    assert "redisDatabase" in fault(RedisSink(), redisDatabase=1, clientMode="Cluster")
    assert "streams" in fault(RedisStreamsSource(), streams=[])
    assert "one stream per source" in fault(RedisStreamsSource(), streams="a,b", clientMode="Cluster")
    assert RedisSink().not_effectively_once(read_config(RedisSinkConfig, {"redisHosts": "h"})) == ""
    config = read_config(RedisSinkConfig, {"redisHosts": "h", "command": "RPUSH"})
    assert "RPUSH" in RedisSink().not_effectively_once(config)


def test_source_acknowledges_what_is_durable_and_begins_with_what_is_not(server: RedisServer) -> None:
    with server.client() as client:
        for number in range(2500):
            client.xadd("s", {"value": str(number), "key": b"\xff", "p": "ü"})
        reader = source(server)
        records = reader.read(2500)
        assert [record.value for record in records] == [str(number).encode() for number in range(2500)]
        assert (records[0].key, records[0].properties["p"]) == (r"\xff", "ü")
        reader.acknowledge(records[:2000])
        reader.close()
        assert client.xpending("s", "public/default/connector")["pending"] == 500
        again = source(server)
        assert [record.value for record in again.read(500)] == [str(number).encode() for number in range(2000, 2500)]
        again.close()


def test_source_reads_again_what_is_not_durable_when_the_server_was_away(server: RedisServer) -> None:
    reader = source(server)
    with server.client() as client:
        client.xadd("s", {"value": "0"})
        client.xadd("s", {"value": "1"})
        first = reader.read(2)
        reader.acknowledge(first[:1])
        client.xadd("s", {"value": "2"})
    server.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.read, 2)
        wait_for(lambda: reader.session.retries >= 2, "two retries")
        assert "Connection refused" in reader.session.trouble
        server.start()
        second = waiting.result(30)
    assert [record.value for record in second] == [b"1", b"2"]
    reader.acknowledge(second)
    reader.close()
    with server.client() as client:
        assert client.xpending("s", "public/default/connector")["pending"] == 0


def test_source_takes_over_what_a_consumer_that_is_gone_left(server: RedisServer) -> None:
    gone = source(server, 1)
    reader = source(server, 0, claimIdleMs=100)
    with server.client() as client:
        client.xadd("s", {"value": "1"})
        (record,) = gone.read(1)
        gone.close()
        (claimed,) = reader.read(1)
        assert claimed.value == record.value
        reader.acknowledge([claimed])
        reader.close()
        assert client.xpending("s", "public/default/connector")["pending"] == 0


def test_source_outlives_trimmed_entries_and_a_stream_that_is_made_anew(server: RedisServer) -> None:
    reader = source(server)
    with server.client() as client:
        client.xadd("s", {"value": "1"})
        reader.read(1)
        reader.close()
        client.xtrim("s", 0, approximate=False)
        client.xadd("s", {"value": "2", "n": "x"})
        reader = source(server, deleteAcknowledged=True)
        (record,) = reader.read(1)
        assert record.value == b"2"
        client.delete("s")
        client.xadd("s", {"text": b"\xff"})
        (anew,) = reader.read(1)
        assert anew.value == rb'{"text": "\\xff"}'
        reader.acknowledge([record, anew])
        reader.close()
        assert client.xlen("s") == 0
        assert client.xpending("s", "public/default/connector")["pending"] == 0


def test_source_refuses_a_key_that_is_no_stream(server: RedisServer) -> None:
    with server.client() as client:
        client.set("s", "text")
    config = read_config(RedisStreamsConfig, {**hosts(server), "streams": "s"})
    with pytest.raises(InvalidConfig, match="'s' is not a stream"):
        RedisStreamsSource().open(config, DirectContext())


def test_two_sources_share_a_stream(server: RedisServer) -> None:
    readers = [source(server, number, batchSize=50) for number in range(2)]
    with server.client() as client:
        for number in range(1000):
            client.xadd("s", {"value": str(number)})
    found: list[list[Record]] = [[], []]

    def read(number: int) -> None:
        while sum(map(len, found)) < 1000:
            found[number] += readers[number].call(readers[number].connector.read)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    numbers = [int(record.value) for records in found for record in records]
    assert len(numbers) == len(set(numbers)) == 1000
    assert all(found)
    for reader in readers:
        reader.close()


def test_sink_and_source_speak_to_a_cluster() -> None:
    with OneNodeCluster.running() as server:
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(server.has_slots, "all slots")
        values = sink(server, clientMode="Cluster")
        values.write(records_of(500))
        entries = sink(server, clientMode="Cluster", command="XADD", key="s")
        entries.write(records_of(500))
        reader = source(server, clientMode="Cluster")
        found = reader.read(500, acknowledges=True)
        with server.client() as client:
            assert client.dbsize() == 501
        server.kill()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(values.write, records_of(10, 500))
            assert "Connection refused" in values.retried(2)
            server.start()
            waiting.result(60)
        for direct in (values, entries, reader):
            direct.close()
        with server.client() as client:
            assert client.dbsize() == 511
            assert client.xpending("s", "public/default/connector")["pending"] == 0
    assert [record.value for record in found] == [record.value for record in records_of(500)]
