"""An in-process broker for tests without Spark; a broker process and one Spark session for tests with Spark."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Coroutine, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from magnetar.broker.storage.config import StorageConfig
from magnetar.state.server import TableServer
from magnetar.wire.topic_name import parse_topic_name

from tests.client.clusters import OurBroker
from tests.client.proxy import Proxy
from tests.spark.functions import Lab
from tests.spark.spark_cluster import LOCAL, Master, SparkCluster, spark_cluster
from tests.spark.specs import MakeSpec, make_spec
from tests.support.pulsar import Broker, own_name
from tests.support.servers import Server, running

if TYPE_CHECKING:
    from magnetar.spark.session import Session
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
HERE = Path(__file__).parent
LEDGER_ENTRIES = 10
FEW_SHUFFLES = {"spark.sql.shuffle.partitions": "2"}
EVENT_LOG = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
"""What Spark keeps of plans and settings, for a test to look into."""
IN_SESSION_S = 600
"""The time of a test in the shared session: any may be the first, which starts it, and one that is broken off in the
middle of a call leaves it useless to all others."""

NEEDS_THE_EXTRA = (
    "test_encrypted_topics.py",
    "test_range_task.py",
    "test_repeated_frames.py",
    "test_repeated_writes.py",
    "test_schema_rows.py",
    "test_security.py",
    "test_stream_cuts.py",
    "test_stream_plans.py",
    "test_stream_sink.py",
    "test_task_segments.py",
    "test_task_publisher.py",
    "test_topic_schemas.py",
)
"""What imports modules that import Spark; `make test` reads all files, and takes none of these."""
collect_ignore = [] if find_spec("pyspark") and find_spec("pyarrow") else list(NEEDS_THE_EXTRA)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose extra is not installed; on the build server, only in make targets that do not install it."""
    for item in items:
        if "session" in getattr(item, "fixturenames", ()) and item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(IN_SESSION_S), append=False)
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError:
        skip = pytest.mark.skip(reason="needs the extra: pip install 'magnetar[spark]'")
        marks = {"spark", "pulsar"} if "CI" in os.environ else {"spark"}
        for item in items:
            if marks <= {mark.name for mark in item.iter_markers()}:
                item.add_marker(skip)


class SmallLedgers(OurBroker):
    """A broker whose topics roll over to a new ledger every few entries."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory, StorageConfig(max_ledger_entries=LEDGER_ENTRIES), **settings)

    def delete(self, topic: str) -> None:
        self.call(self.service.delete_topic(parse_topic_name(topic), force=True))

    def trim(self, topic: str) -> list[int]:
        """Delete all ledgers except the last and return the deleted ones."""

        async def trim() -> list[int]:
            return await (await self.service.topic(parse_topic_name(topic))).log.trim(0, 0)

        return self.call(trim())

    def backlogs(self, topic: str) -> dict[str, int]:
        """Return the number of unacknowledged messages per subscription."""

        async def stats() -> dict[str, Any]:
            return (await self.service.topic(parse_topic_name(topic))).stats()

        return {name: one["msgBacklog"] for name, one in self.call(stats())["subscriptions"].items()}

    def unsubscribe(self, topic: str, subscription: str) -> None:
        """Delete a subscription without consumers."""

        async def unsubscribe() -> None:
            await (await self.service.topic(parse_topic_name(topic))).subscriptions[subscription].delete(force=True)

        self.call(unsubscribe())

    def messages_out(self, topic: str) -> int:
        async def messages_out() -> int:
            return (await self.service.topic(parse_topic_name(topic))).messages_out

        return self.call(messages_out())

    def exists(self, topic: str) -> bool:
        return any(topic in name for name in self.service.topic_names("public/default"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallLedgers]:
    it = SmallLedgers(tmp_path_factory.mktemp("broker"))
    yield it
    it.close()


class Background:
    """An event loop in a thread, for work that runs beside blocking test code."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="background", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class BadNetwork:
    """A proxy in the background, controlled by blocking calls."""

    def __init__(self, background: Background, proxy: Proxy) -> None:
        self._background = background
        self._proxy = proxy

    @property
    def service_url(self) -> str:
        return self._proxy.service_url

    @property
    def connections(self) -> int:
        return self._proxy.connections

    def cut(self) -> None:
        self._background.loop.call_soon_threadsafe(self._proxy.cut)

    def cut_after_sends(self, count: int) -> None:
        """Cut the connection after that many more SENDs."""
        self._proxy.cut_after_sends = count

    def hold(self) -> None:
        self._background.loop.call_soon_threadsafe(self._proxy.hold)


@contextlib.contextmanager
def bad_network(proxy: Proxy) -> Iterator[BadNetwork]:
    """Run a proxy in the background."""
    background = Background()
    try:
        background.run(proxy.__aenter__())
        yield BadNetwork(background, proxy)
        background.run(proxy.__aexit__(None, None, None))
    finally:
        background.close()


@pytest.fixture
def network(broker: SmallLedgers) -> Iterator[BadNetwork]:
    with bad_network(Proxy(broker.service_url)) as network:
        yield network


@pytest.fixture
def topic(broker: SmallLedgers) -> str:
    return broker.topic()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker process with its REST interface."""
    with running("broker", tmp_path_factory.mktemp("broker-process")) as it:
        yield it


@pytest.fixture(scope="session")
def spark_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A standalone Spark cluster."""
    with spark_cluster(tmp_path_factory.mktemp("spark-cluster")) as it:
        yield it


@pytest.fixture(scope="session")
def master(request: pytest.FixtureRequest) -> Master:
    """Run on this machine's cores, or on a standalone cluster for tests marked `spark_cluster.ON_CLUSTER`."""
    if getattr(request, "param", None) is None:
        return LOCAL
    workers: SparkCluster = request.getfixturevalue("spark_workers")
    return workers.as_master()


@pytest.fixture(scope="session")
def session(master: Master, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Start the only JVM of this test process, which takes about ten seconds; PySpark supports one at a time."""
    from magnetar.spark.session import SessionConfig, open_session

    directory = tmp_path_factory.mktemp("spark")
    events = directory / "events"
    events.mkdir()
    config = SessionConfig(
        directory=directory,
        master=master.url,
        heap="768m",
        log_file=directory / "jvm.log",
        settings={**FEW_SHUFFLES, **EVENT_LOG, "spark.eventLog.dir": events.as_uri(), **master.settings},
    )
    with open_session(config, master.environment) as it:
        yield it


@pytest.fixture
def spark(session: Session) -> SparkSession:
    return session.spark


@pytest.fixture
def make(tmp_path: Path) -> MakeSpec:
    return partial(make_spec, tmp_path)


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableServer]:
    server = TableServer.start(tmp_path_factory.mktemp("state"))
    yield server
    server.stop()


@pytest.fixture
def lab(
    cluster: Broker,
    state: TableServer,
    session: Session,
    master: Master,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Lab:
    name = own_name(re.sub(r"\W+|_+", "-", request.node.name)[:40])
    return Lab(cluster, state, session, tmp_path, name, lambda: master.python_workers(session.pid))
