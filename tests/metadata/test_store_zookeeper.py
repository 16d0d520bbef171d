"""The ZooKeeper provider on a real server: the conformance checks, and what only a remote store can suffer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from magnetar.errors import BadVersion, ClosedError, MetadataUnavailable
from magnetar.metadata.store.store import ABSENT, Change, MetadataStore
from magnetar.metadata.store.zookeeper import ZookeeperStore

from tests.conformance.metadata_store import CHECKS, check_survives_reopening, eventually
from tests.support.calm import Calm
from tests.support.zookeeper import Zookeeper, running_zookeeper

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zookeeper]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
async def store(zookeeper: Zookeeper, request: pytest.FixtureRequest) -> AsyncIterator[ZookeeperStore]:
    store = await ZookeeperStore.open(zookeeper.servers, f"/tests/{request.node.name}", 60)
    yield store
    await store.close()


@pytest.fixture
def other(zookeeper: Zookeeper, request: pytest.FixtureRequest) -> Iterator[KazooClient]:
    """Another client of the ensemble, below the same node."""
    client = KazooClient(f"{zookeeper.servers}/tests/{request.node.name}")
    client.start(60)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[Zookeeper]:
    """A server that a test may kill."""
    with running_zookeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_zookeeper_keeps_the_promise(
    check: Callable[[MetadataStore, str], Awaitable[None]], store: ZookeeperStore
) -> None:
    await check(store, f"/{check.__name__}")


async def test_zookeeper_store_survives_reopening(zookeeper: Zookeeper) -> None:
    async def make_store() -> MetadataStore:
        return await ZookeeperStore.open(zookeeper.servers, "/tests/reopening", 60)

    await check_survives_reopening(make_store)


async def test_the_root_of_the_ensemble_shows_nothing_of_zookeeper_itself(zookeeper: Zookeeper) -> None:
    store = await ZookeeperStore.open(zookeeper.servers, "/", 60)
    try:
        seen: list[Change] = []
        watch = store.watch("/", seen.append)
        version = await store.put("/at-the-root/a", b"v")
        await eventually(lambda: bool(seen), "the change is reported")
        assert seen == [Change("/at-the-root/a", version)]
        assert "at-the-root" in await store.children("/")
        assert "zookeeper" not in await store.children("/")
        watch.close()
    finally:
        await store.close()


async def test_nodes_without_records_go_with_the_last_one_below_them(store: ZookeeperStore, other: KazooClient) -> None:
    await store.put("/a/b/c", b"v")
    await store.put("/a/d", b"v")
    await store.delete("/a/b/c")
    assert other.get_children("/a") == ["d"]
    await store.delete("/a/d")
    assert other.get_children("/") == []


async def test_concurrent_puts_and_deletes_leave_no_empty_node_behind(
    zookeeper: Zookeeper, store: ZookeeperStore, other: KazooClient, request: pytest.FixtureRequest
) -> None:
    second = await ZookeeperStore.open(zookeeper.servers, f"/tests/{request.node.name}", 60)
    paths = ["/p", "/p/q", "/p/q/r", "/p/q/s", "/p/t"]
    try:
        for turn in range(12):
            await asyncio.gather(
                *(s.put(path, b"%d" % turn) for s in (store, second) for path in paths),
                *(s.delete(path) for s in (second, store) for path in paths),
            )
            await asyncio.gather(*(s.delete(path) for s in (store, second) for path in paths))
            assert other.get_children("/") == []
    finally:
        await second.close()


async def test_a_node_without_value_is_no_record_whatever_its_version(
    store: ZookeeperStore, other: KazooClient
) -> None:
    await store.put("/a/b", b"v")
    _, stat = other.get("/a")
    with pytest.raises(BadVersion, match="the record does not exist"):
        await store.put("/a", b"v", stat.version)
    with pytest.raises(BadVersion, match="the record does not exist"):
        await store.delete("/a", stat.version)
    assert await store.delete("/a") is False


async def test_a_watch_reports_what_another_client_does(store: ZookeeperStore, other: KazooClient) -> None:
    await store.put("/w/a", b"v")
    seen: list[Change] = []
    store.watch("/w", seen.append)
    assert await store.get("/w/a") == (b"v", 0)
    await asyncio.to_thread(other.create, "/w/x/y", b"new", makepath=True)
    await eventually(lambda: Change("/w/x/y", 0) in seen, "the new record is reported")
    await asyncio.to_thread(other.set, "/w/a", b"w")
    await eventually(lambda: Change("/w/a", 1) in seen, "the changed record is reported")
    await asyncio.to_thread(other.set, "/w/x/y", b"newer")  # below a node that came after the watch
    await eventually(lambda: Change("/w/x/y", 1) in seen, "the change below is reported")
    await asyncio.to_thread(other.delete, "/w", recursive=True)
    await eventually(lambda: seen.count(Change("/w/x/y", None)) == 1, "the deletion below is reported")
    await eventually(lambda: Change("/w/a", None) in seen, "the deletion is reported")
    await asyncio.to_thread(other.create, "/w/a", b"again", makepath=True)  # version 0, as at the beginning
    await eventually(lambda: Change("/w/a", 0) in seen, "the record made anew is reported")


async def expire(store: ZookeeperStore, zookeeper: Zookeeper) -> None:
    """End the store's session behind its back: whoever knows its number and password may close it."""
    before = store._session.generation
    thief = KazooClient(zookeeper.servers, client_id=store._session._client.client_id)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    thief.close()
    await eventually(lambda: store._session.generation > before, "a new session")


async def test_an_expired_session_is_replaced_and_its_watches_see_what_they_missed(
    zookeeper: Zookeeper, store: ZookeeperStore, other: KazooClient
) -> None:
    await store.put("/w/a", b"v")
    await store.put("/w/b", b"v")
    seen: list[Change] = []
    store.watch("/w", seen.append)
    assert await store.children("/w") == ["a", "b"]
    session_id = store._session._client.client_id[0]
    changing = asyncio.to_thread(other.set, "/w/a", b"changed meanwhile")
    await asyncio.gather(expire(store, zookeeper), changing)
    assert store._session._client.client_id[0] != session_id
    await eventually(lambda: Change("/w/a", 1) in seen, "the change is reported, before or after the new session")
    await asyncio.to_thread(other.delete, "/w/b")
    await eventually(lambda: Change("/w/b", None) in seen, "the watches of the new session work")
    assert await store.put("/w/a", b"w", 1) == 2
    assert {change.path for change in seen} <= {"/w/a", "/w/b"}


async def test_a_killed_server_makes_operations_wait_and_then_fail_and_all_recovers(own_zookeeper: Zookeeper) -> None:
    store = await ZookeeperStore.open(own_zookeeper.servers, "/m", 60)
    try:
        version = await store.put("/w/a", b"v")
        seen: list[Change] = []
        store.watch("/w", seen.append)
        await store.get("/w/a")
        own_zookeeper.kill()
        store._timeout_s = 1
        with pytest.raises(MetadataUnavailable, match=rf"{own_zookeeper.servers}: timed out after 1 s .*; retry"):
            await store.get("/w/a")
        store._timeout_s = 60
        patient = asyncio.ensure_future(store.put("/w/b", b"waits", ABSENT))
        await asyncio.to_thread(own_zookeeper.start)
        assert await patient == 0
        assert await store.get("/w/a") == (b"v", version)
        await eventually(lambda: Change("/w/b", 0) in seen, "the watch is set anew")
        assert Change("/w/a", version) not in seen  # it did not change
    finally:
        await store.close()


async def test_watches_report_what_changed_while_there_was_no_connection(own_zookeeper: Zookeeper) -> None:
    store = await ZookeeperStore.open(own_zookeeper.servers, "/m", 60)
    try:
        for name in "abc":
            await store.put(f"/w/{name}", b"v")
        seen: list[Change] = []
        store.watch("/w", seen.append)
        await store.get("/w/a")
        own_zookeeper.kill()
        await eventually(lambda: not store._session.is_connected, "the loss is noticed")
        # Our own client sleeps between attempts and then reads the whole tree: these changes are made first.
        store._session._client.set_hosts("127.0.0.1:1")
        await asyncio.to_thread(own_zookeeper.start)
        other = KazooClient(f"{own_zookeeper.servers}/m")
        await asyncio.to_thread(other.start, 60)
        other.set("/w/a", b"changed")
        other.delete("/w/b")
        other.create("/w/new/d", b"v", makepath=True)
        other.stop()
        other.close()
        assert seen == []
        store._session._client.set_hosts(own_zookeeper.servers)
        expected = {Change("/w/a", 1), Change("/w/b", None), Change("/w/new/d", 0)}
        await eventually(lambda: set(seen) >= expected, "the missed changes are reported")
        assert len(seen) == len(expected)
    finally:
        await store.close()


async def test_a_write_that_depends_on_a_version_is_not_repeated_blindly(own_zookeeper: Zookeeper) -> None:
    store = await ZookeeperStore.open(own_zookeeper.servers, "/m", 60)
    try:
        version = await store.put("/a", b"v")
        call: Callable[[Any], Awaitable[Any]] = store._session.call

        async def kill_after_the_read(start: Callable[[Any], Any]) -> Any:
            if not own_zookeeper_is_frozen:
                own_zookeeper_is_frozen.append(True)
                return await call(start)
            own_zookeeper.freeze()  # it will get the request, and never answer it
            sent = asyncio.ensure_future(call(start))
            client = store._session._client
            await eventually(lambda: bool(client._pending) and not client._queue, "the request is on its way")
            own_zookeeper.kill()
            return await sent

        own_zookeeper_is_frozen: list[bool] = []
        store._session.call = kill_after_the_read  # type: ignore[method-assign]
        with pytest.raises(
            MetadataUnavailable, match="the connection was lost for /m/a; the change may or may not have taken effect"
        ):
            await store.put("/a", b"w", version)
        store._session.call = call  # type: ignore[assignment, method-assign]
        await asyncio.to_thread(own_zookeeper.start)
        assert await store.put("/a", b"x") in (version + 1, version + 2)
    finally:
        await store.close()


async def test_a_store_is_closed_soon_while_its_server_is_silent(own_zookeeper: Zookeeper) -> None:
    store = await ZookeeperStore.open(own_zookeeper.servers, "/m", 60)
    own_zookeeper.freeze()
    waiting = asyncio.ensure_future(store.put("/a", b"v"))
    await asyncio.sleep(0)
    closing = Calm()
    async with asyncio.timeout(60):
        await store.close()
        assert closing.calm_s < 9, closing  # the servers promise to stop within 10 s
        with pytest.raises((ClosedError, MetadataUnavailable)):
            await waiting


async def test_a_cancelled_put_is_carried_out_before_the_next_one(store: ZookeeperStore) -> None:
    for turn in range(20):
        first = asyncio.ensure_future(store.put(f"/c/{turn}/deep/deeper", b"first"))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await store.put(f"/c/{turn}/deep/deeper", b"second") == 1


async def test_opening_is_refused_when_nobody_answers() -> None:
    with pytest.raises(
        MetadataUnavailable, match=r"no ZooKeeper server responded at 127\.0\.0\.1:1 within 0\.3 s: start"
    ):
        await ZookeeperStore.open("127.0.0.1:1", "/m", 0.3)


async def test_opening_is_refused_when_somebody_else_answers() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(MetadataUnavailable, match="no ZooKeeper server responded"):
            await ZookeeperStore.open(f"127.0.0.1:{port}", "/m", 0.5)
