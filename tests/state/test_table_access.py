"""Who may use which table: a token opens one, and a service with a key takes nothing else."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import InvalidConfig, StateRefused, StateStoreUnavailable
from magnetar.state.access import TableKey, token_in, with_token, without_token
from magnetar.state.calls import CALLS_PER_TENANT, THREADS, THREADS_PER_TENANT, CallThreads, RequestWatch
from magnetar.state.client import TABLE, TOKEN, Increment, Position, TableClient
from magnetar.state.limits import address_of
from magnetar.state.names import with_epoch
from magnetar.state.server import TableServer
from magnetar.wire import state_pb2 as pb

KEY = TableKey(bytes(range(32)))
OTHER_KEY = TableKey(bytes(32))
OWN, OTHER = "acme/orders/count@1", "rival/orders/count@2"
WRITER = b"w" * 16

NAMES = st.text(min_size=1, max_size=40)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TableServer]:
    server = TableServer.start(tmp_path, key=KEY)
    yield server
    server.stop()


@pytest.fixture
def connect(guarded: TableServer) -> Iterator[Callable[[str], TableClient]]:
    """Return a client that shows a token."""
    made: list[TableClient] = []

    def connect(token: str) -> TableClient:
        made.append(TableClient(with_token(guarded.url, token) if token else guarded.url))
        return made[-1]

    yield connect
    for client in made:
        client.close()


def test_function_uses_its_own_table(connect: Callable[[str], TableClient]) -> None:
    own = connect(KEY.table_token(OWN))
    own.apply(OWN, WRITER, 1, [Increment(b"n", 2)])
    own.put(OWN, b"k", b"v")
    assert [value and value.data for value in own.read(OWN, [b"k"])] == [b"v"]
    assert own.open(OWN, "uuid", "p").position is None


def test_token_is_of_all_epochs_of_a_table(connect: Callable[[str], TableClient]) -> None:
    assert KEY.table_token(with_epoch(OWN, 7)) == KEY.table_token(OWN)
    connect(KEY.table_token(with_epoch(OWN, 7))).put(with_epoch(OWN, 7), b"k", b"v")


CALLS: dict[str, Callable[[TableClient, str], object]] = {
    "read": lambda client, table: client.read(table, [b"k"]),
    "look": lambda client, table: client.look(table, [], WRITER),
    "apply": lambda client, table: client.apply(table, WRITER, 1, [Increment(b"n", 1)]),
    "put": lambda client, table: client.put(table, b"k", b"v"),
    "open": lambda client, table: client.open(table, "uuid", "p"),
    "commit": lambda client, table: client.commit(table, "uuid", "p", None, Position(1, 1), [], [], None),
}
CALLS_OF_WORKERS: dict[str, Callable[[TableClient, str], object]] = {
    "keep": lambda client, table: client.keep(table, 1),
    "kept": lambda client, table: client.kept(table),
    "restore": lambda client, table: client.restore(table, 1, 1),
    "drop": lambda client, table: client.drop(table),
    "tables": lambda client, _: client.tables(),
    "statistics": lambda client, _: client.statistics(),
}
BAD_TOKENS = {
    "none": "",
    "of another table": KEY.table_token(OTHER),
    "of another key": OTHER_KEY.table_token(OWN),
    "all of another key": OTHER_KEY.full_token(),
    "cut": KEY.table_token(OWN)[:-1],
    "longer": KEY.table_token(OWN) + "A",
}


@pytest.mark.parametrize("kind", BAD_TOKENS)
def test_no_call_is_taken_without_the_token_of_the_table(kind: str, connect: Callable[[str], TableClient]) -> None:
    client = connect(BAD_TOKENS[kind])
    for call in (CALLS | CALLS_OF_WORKERS).values():
        with pytest.raises(StateRefused, match="requires a token") as caught:
            call(client, OWN)
        assert not BAD_TOKENS[kind] or BAD_TOKENS[kind] not in str(caught.value)
    worker = connect(KEY.full_token())
    assert worker.tables() == []
    assert worker.read(OWN, [b"n", b"k"]) == [None, None]


@pytest.mark.parametrize("name", CALLS_OF_WORKERS)
def test_functions_cannot_do_what_is_kept_to_workers(name: str, connect: Callable[[str], TableClient]) -> None:
    own = connect(KEY.table_token(OWN))
    own.put(OWN, b"k", b"v")
    with pytest.raises(StateRefused, match="requires a token, and the caller sent an invalid one"):
        CALLS_OF_WORKERS[name](own, OWN)
    assert connect(KEY.full_token()).tables() == [OWN]


def test_worker_does_everything(connect: Callable[[str], TableClient]) -> None:
    worker = connect(KEY.full_token())
    for name, call in (CALLS | CALLS_OF_WORKERS).items():
        if name != "commit":
            call(worker, OWN)
    assert worker.tables() == []


def test_copies_of_a_table_are_closed_to_functions(connect: Callable[[str], TableClient]) -> None:
    worker = connect(KEY.full_token())
    worker.put(OWN, b"k", b"v")
    worker.keep(OWN, 1)
    own = connect(KEY.table_token(OWN))
    for name in (f"{OWN}:kept:1", f"{OWN}:unfinished", f"{OWN}:kept:"):
        with pytest.raises(StateRefused, match=r"expected tenant/namespace/name|requires a token"):
            own._call(own._read, pb.ReadRequest(table=name, keys=[b"k"]), 5.0)


@given(NAMES, NAMES)
def test_token_opens_one_name(name: str, other: str) -> None:
    token = KEY.table_token(with_epoch(name, 0))
    own, _, _ = name.partition(":")
    assert KEY.allows(KEY.table_token(own), own)
    assert KEY.allows(token, other) == (KEY.table_token(other) == token and ":" not in other) or other == name
    assert not KEY.allows(token, None)
    assert KEY.allows(KEY.full_token(), other)


@given(st.text(max_size=100), NAMES)
def test_no_other_text_opens_anything(text: str, table: str) -> None:
    assert not KEY.allows(text, table)
    assert not KEY.allows(text, None)


def test_calls_that_never_send_their_request_stop_nobody(
    guarded: TableServer, connect: Callable[[str], TableClient]
) -> None:
    release = threading.Event()

    def nothing() -> Iterator[bytes]:
        release.wait(30)
        yield from ()

    with grpc.insecure_channel(guarded.url.removeprefix("bk://")) as channel:
        begin = channel.stream_unary("/magnetar.state.TableService/Read", bytes, bytes)
        calls = [begin.future(nothing(), timeout=30) for _ in range(THREADS + 8)]
        try:
            for call in calls:
                refusal = cast(Any, call).exception(10)
                assert isinstance(refusal, grpc.RpcError)
                assert "requires a token" in str(refusal)
            assert connect(KEY.full_token()).read(OWN, [b"k"]) == [None]
        finally:
            release.set()


def test_token_of_one_table_does_not_open_another_that_the_request_names(
    connect: Callable[[str], TableClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = connect(KEY.table_token(OWN))
    own.put(OWN, b"k", b"v")
    monkeypatch.setattr(own, "_credentials", lambda _: ((TOKEN, KEY.table_token(OWN)), (TABLE, OWN.encode())))
    with pytest.raises(StateRefused, match="requires a token, and the caller sent an invalid one"):
        own.put(OTHER, b"k", b"v")
    with pytest.raises(StateRefused, match="requires a token, and the caller sent an invalid one"):
        own.drop(OWN)


def test_url_with_a_token_is_shown_without_it(connect: Callable[[str], TableClient]) -> None:
    url = with_token("bk://127.0.0.1:1", "secret")
    assert (url, token_in(url), without_token(url)) == ("bk://secret@127.0.0.1:1", "secret", "bk://127.0.0.1:1")
    assert with_token(url, "next") == "bk://next@127.0.0.1:1"
    assert address_of(url) == ("127.0.0.1", 1)
    assert without_token("bk://h:1") == "bk://h:1"
    with pytest.raises(InvalidConfig, match=r"'bk://…@h:port'") as caught:
        TableClient("bk://secret@h:port")
    assert "secret" not in str(caught.value)
    client = TableClient(url)
    assert "secret" not in repr(client)
    with pytest.raises(StateStoreUnavailable, match=r"127\.0\.0\.1:1") as failed:
        client.read("a/b/c", [b"k"], timeout_s=0.5)
    client.close()
    assert "secret" not in str(failed.value)


def test_key_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "state.key"
    file.write_bytes(bytes(range(32)))
    for place in (str(file), f"file://{file}"):
        assert TableKey.read(place).full_token() == KEY.full_token()
    file.write_bytes(b"short")
    with pytest.raises(InvalidConfig, match="32 to 4096 bytes, not 5"):
        TableKey.read(str(file))
    file.write_bytes(bytes(5000))
    with pytest.raises(InvalidConfig, match="must have 32 to 4096 bytes, not 4097"):
        TableKey.read(str(file))
    with pytest.raises(InvalidConfig, match="No such file"):
        TableKey.read(str(tmp_path / "none"))
    assert repr(TableKey(b"s" * 32)) == "TableKey()"


def test_key_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "data" / "state.key"
    made = TableKey.made_at(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert TableKey.made_at(file).full_token() == made.full_token()
    assert [one.name for one in file.parent.iterdir()] == ["state.key"]


def half_calls(channel: grpc.Channel, table: str, count: int, release: threading.Event) -> list[Any]:
    """Begin calls with a valid token that do not send their request before the event is set."""

    def nothing() -> Iterator[bytes]:
        release.wait(60)
        yield from ()

    begin = channel.stream_unary("/magnetar.state.TableService/Read", bytes, bytes)
    shown = ((TOKEN, KEY.table_token(table)), (TABLE, table.encode()))
    return [cast(Any, begin.future(nothing(), timeout=60, metadata=shown)) for _ in range(count)]


def test_half_calls_of_one_tenant_stop_no_other(guarded: TableServer, connect: Callable[[str], TableClient]) -> None:
    release = threading.Event()
    other = connect(KEY.table_token(OTHER))
    with grpc.insecure_channel(guarded.url.removeprefix("bk://")) as channel:
        try:
            half_calls(channel, OWN, THREADS_PER_TENANT + 8, release)
            for number in range(20):
                other.put(OTHER, b"k", str(number).encode())
            found = other.read(OTHER, [b"k"])
            assert [one and one.data for one in found] == [b"19"]
        finally:
            release.set()


def test_a_tenant_with_too_many_calls_under_way_is_refused(
    guarded: TableServer, connect: Callable[[str], TableClient]
) -> None:
    release = threading.Event()
    with grpc.insecure_channel(guarded.url.removeprefix("bk://")) as channel:
        try:
            calls = half_calls(channel, OWN, CALLS_PER_TENANT + 1, release)
            refused = next(grpc_error for call in calls[::-1] if (grpc_error := call.exception(30)) is not None)
            assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "the tenant has 512 pending calls to the state store, the maximum" in refused.details()
            connect(KEY.table_token(OTHER)).put(OTHER, b"k", b"v")
        finally:
            release.set()


def test_a_call_that_does_not_send_its_request_is_cancelled() -> None:
    cancelled = threading.Event()

    class Context:
        def cancel(self) -> None:
            cancelled.set()

    def requests() -> Iterator[str]:
        assert cancelled.wait(60)
        return
        yield

    watch = RequestWatch(timeout_s=0.05)
    assert watch.next(iter(["request"]), cast(Any, Context())) == "request"
    assert not cancelled.is_set()
    assert watch.next(requests(), cast(Any, Context())) is None
    watch.close()


def test_threads_go_to_tenants_in_turn() -> None:
    threads = CallThreads(has_tenants=True)
    go_on, order = threading.Event(), []

    def call(name: str) -> None:
        go_on.wait(60)
        order.append(name)

    def submit(tenant: str, name: str) -> Any:
        threads.expect(tenant)
        return threads.submit(call, name)

    greedy = [submit("greedy", f"greedy {number}") for number in range(3 * THREADS_PER_TENANT)]
    others = [submit(f"t{number}", "other") for number in range(4)]
    threads.expect(None)
    assert threads.submit(lambda: "at once").result(30) == "at once"
    running = sum(one.running() for one in greedy)
    assert running == THREADS_PER_TENANT
    go_on.set()
    for one in (*greedy, *others):
        one.result(30)
    assert order.count("other") == 4
    assert {f"greedy {number}" for number in range(3 * THREADS_PER_TENANT)} < set(order)
    threads.shutdown()
