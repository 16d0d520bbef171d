"""The connectors `pulsar`: what is written again under EFFECTIVELY_ONCE is dropped by the other cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pulsar
import pytest
from magnetar.api.connector import Record
from magnetar.connectors.pulsar_sink import PulsarSink, PulsarSinkConfig
from magnetar.connectors.pulsar_source import PulsarSource
from magnetar.instance.connectors.session import OpenFailed

from tests.connectors.direct import Direct, DirectContext
from tests.connectors.servers.other_cluster import OtherCluster
from tests.support.pulsar import BROKERS, Broker

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
    assert "give adminUrl" in sink.not_effectively_once(PulsarSinkConfig(cluster.service_url, topic))
    assert not sink.not_effectively_once(PulsarSinkConfig(cluster.service_url, topic, cluster.admin_url))
    path = topic.replace("://", "/")
    httpx.put(f"{cluster.admin_url}/admin/v2/{path}/partitions", json=3).raise_for_status()
    configs = {"serviceUrl": cluster.service_url, "topic": topic, "adminUrl": cluster.admin_url}
    opened = Direct(PulsarSink(), configs, exact_context())
    with pytest.raises(OpenFailed, match=r"topic: .* has 3 partitions"):
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
