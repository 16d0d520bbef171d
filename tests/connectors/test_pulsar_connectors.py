"""The connectors `pulsar`: what is written again under EFFECTIVELY_ONCE is dropped by the other cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pulsar
import pytest
from magnetar.api.connector import Record, Retry
from magnetar.api.connector_config import read_config
from magnetar.connectors.pulsar_sink import PulsarSink, PulsarSinkConfig
from magnetar.connectors.pulsar_source import PulsarSource
from magnetar.errors import InvalidConfig
from magnetar.instance.connectors.session import OpenFailed

from tests.connectors.direct import Direct, DirectContext
from tests.connectors.servers.other_cluster import OtherCluster
from tests.support.keys import Pair, write_pair
from tests.support.pulsar import BROKERS, Broker
from tests.support.waiting import wait_for

LEDGER = 7 << 34


class Cluster(NamedTuple):
    """The other cluster: where it listens."""

    service_url: str
    admin_url: str


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "pulsar":
        pulsar: Broker = request.getfixturevalue("apache_pulsar")
        yield Cluster(pulsar.service_url, pulsar.web_url)
    else:
        with OtherCluster.running() as ours:
            yield Cluster(ours.service_url, ours.admin_url)


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/t-{uuid.uuid4().hex[:8]}"


def exact_context() -> DirectContext:
    context = DirectContext()
    context.is_exact = True
    context.incarnation = f"public/default/connector@{uuid.uuid4()}"
    return context


def sequenced(count: int, first: int = 0) -> list[Record]:
    """Records with the numbers that an instance gives them."""
    return [
        Record(f"v{n}", f"k{n % 5}", topic="persistent://public/default/in", message_id=f"7:{n}", sequence=LEDGER + n)
        for n in range(first, first + count)
    ]


def contents(cluster: Cluster, topic: str) -> list[bytes]:
    client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(10_000).data())
    client.close()
    return found


def test_records_that_come_again_are_dropped_by_the_other_cluster(cluster: Cluster, topic: str) -> None:
    configs = {"serviceUrl": cluster.service_url, "topic": topic, "adminUrl": cluster.admin_url}
    context = exact_context()
    first = Direct(PulsarSink(), configs, context)
    first.write(sequenced(300))
    first.close()
    second = Direct(PulsarSink(), configs, context)
    second.write(sequenced(400, 100))  # cut otherwise than the first time
    second.close()
    assert contents(cluster, topic) == [f"v{n}".encode() for n in range(500)]
    anew = Direct(PulsarSink(), configs, exact_context())
    anew.write(sequenced(10))  # another sink of the same name
    anew.close()
    assert contents(cluster, topic)[500:] == [f"v{n}".encode() for n in range(10)]


def test_exact_sink_refuses_a_partitioned_topic_and_a_cluster_that_cannot_be_asked(
    cluster: Cluster, topic: str
) -> None:
    sink = PulsarSink()
    assert "set adminUrl" in sink.not_effectively_once(PulsarSinkConfig(service_url=cluster.service_url, topic=topic))
    given = PulsarSinkConfig(service_url=cluster.service_url, topic=topic, admin_url=cluster.admin_url)
    assert not sink.not_effectively_once(given)
    path = topic.replace("://", "/")
    httpx.put(f"{cluster.admin_url}/admin/v2/{path}/partitions", json=3).raise_for_status()
    configs = {"serviceUrl": cluster.service_url, "topic": topic, "adminUrl": cluster.admin_url}
    opened = Direct(PulsarSink(), configs, exact_context())
    with pytest.raises(OpenFailed, match=r"topic .* has 3 partitions"):
        opened.write(sequenced(1))
    opened.close()
    one = Direct(PulsarSink(), {**configs, "topic": f"{topic}-partition-1"}, exact_context())
    one.write(sequenced(1))
    one.close()


def test_source_acknowledges_what_is_durable_only(cluster: Cluster, topic: str) -> None:
    sink = Direct(PulsarSink(), {"serviceUrl": cluster.service_url, "topic": topic})
    sink.write(sequenced(200))
    sink.close()
    configs = {"serviceUrl": cluster.service_url, "topic": topic, "subscriptionName": "s"}
    source = Direct(PulsarSource(), configs)
    records = source.read(200)
    assert [record.value for record in records] == [f"v{n}".encode() for n in range(200)]
    source.close()
    again = Direct(PulsarSource(), configs)
    records = again.read(200)
    again.acknowledge(records)
    again.close()
    last = Direct(PulsarSource(), configs)
    assert last.call(last.connector.read) is None
    last.close()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    directory = tmp_path_factory.mktemp("keys")
    return write_pair(directory, "one"), write_pair(directory, "two")


def test_messages_are_encrypted_on_the_other_cluster(cluster: Cluster, topic: str, pairs: tuple[Pair, Pair]) -> None:
    configs = {"serviceUrl": cluster.service_url, "topic": topic}
    keys = {"encryptionKeys": ["k"], "cryptoPublicKey": f"file://{pairs[0].public}"}
    for exact in (False, True):
        context = exact_context() if exact else None
        sink = Direct(PulsarSink(), configs | keys | {"adminUrl": cluster.admin_url}, context)
        sink.write(sequenced(50, 50 * exact))
        sink.close()
    client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=pairs[0].official)
    assert [reader.read_next(10_000).data() for _ in range(100)] == [f"v{n}".encode() for n in range(100)]
    client.close()
    reading = configs | {"subscriptionName": "s", "cryptoPrivateKey": f"file://{pairs[0].private}"}
    source = Direct(PulsarSource(), reading)
    assert [record.value for record in source.read(100)] == [f"v{n}".encode() for n in range(100)]
    source.close()


def test_a_source_stops_at_what_it_cannot_decrypt_unless_it_may_go_on(
    cluster: Cluster, topic: str, pairs: tuple[Pair, Pair]
) -> None:
    configs = {"serviceUrl": cluster.service_url, "topic": topic}
    keys = {"encryptionKeys": ["k"], "cryptoPublicKey": f"file://{pairs[0].public}"}
    for settings in (keys, {}):
        sink = Direct(PulsarSink(), configs | settings)
        sink.write(sequenced(3))
        sink.close()
    reading = configs | {"subscriptionName": "s", "cryptoPrivateKey": f"file://{pairs[1].private}"}
    source = Direct(PulsarSource(), reading)
    wait_for(lambda: "the private key does not match the message" in _trouble(source), "the reason")
    source.close()
    discarding = Direct(PulsarSource(), reading | {"cryptoFailureAction": "DISCARD"})
    assert [record.value for record in discarding.read(3)] == [b"v0", b"v1", b"v2"]  # those in the clear
    discarding.close()


def _trouble(source: Direct) -> str:
    """Read once, and return why that was not possible."""
    try:
        source.connector.read()
    except AssertionError:
        source.session.call(lambda: None)  # opens it
    except Retry as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"encryptionKeys": ["k"]}, "encryptionKeys and cryptoPublicKey must be set together"),
        ({"encryptionKeys": ["k"], "cryptoPublicKey": "data:,x"}, "cryptoPublicKey must not contain the key itself"),
    ],
)
def test_keys_of_a_sink_are_checked(settings: dict[str, object], text: str) -> None:
    sink = PulsarSink()
    with pytest.raises(InvalidConfig, match=text):
        sink.check(read_config(PulsarSinkConfig, {"serviceUrl": "pulsar://localhost", "topic": "t"} | settings))
