from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from magnetar.client import AsyncClient, ClientConfig

from tests.client.clusters import Cluster, OurBroker, TheirBroker
from tests.client.proxy import Proxy
from tests.support.pulsar import BROKERS, ApachePulsar


@pytest.fixture(scope="session", params=BROKERS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run each protocol test on our broker, and on a real Apache Pulsar if there is one."""
    it: Cluster
    if request.param == "ours":
        it = OurBroker(tmp_path_factory.mktemp("broker"))
    else:
        pulsar: ApachePulsar = request.getfixturevalue("apache_pulsar")
        it = TheirBroker(pulsar.service_url, pulsar.web_url, pulsar.acknowledges_inside_batches())
    yield it
    it.close()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.topic()


@pytest_asyncio.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster.service_url, ClientConfig(operation_timeout_s=60)) as it:
        yield it


@pytest_asyncio.fixture
async def proxy(cluster: Cluster) -> AsyncIterator[Proxy]:
    async with Proxy(cluster.service_url) as it:
        yield it


@pytest_asyncio.fixture
async def proxied(proxy: Proxy) -> AsyncIterator[AsyncClient]:
    """A client whose connections can be cut."""
    config = ClientConfig(operation_timeout_s=60, backoff_initial_ms=20, backoff_max_ms=200)
    async with AsyncClient(proxy.service_url, config) as it:
        yield it
