"""Answers of a hostile instance: whatever bytes it sends, its worker takes a record within bounds, or none."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import ConnectionLost
from magnetar.runtime.control import SERVICE, ControlClient
from magnetar.runtime.instance_answers import ANSWER_BYTES_MAX, COUNT_MAX, read_metrics, read_status
from magnetar.wire.functions_pb2 import FunctionStatus, MetricsData
from magnetar.worker.functions.components import FUNCTION
from magnetar.worker.functions.instances import InstanceMetrics
from magnetar.worker.rest import metrics as page

UserMetric = MetricsData.UserMetric


@given(st.binary(max_size=400))
def test_any_bytes_are_a_status_or_a_lost_connection(data: bytes) -> None:
    try:
        status = read_status(data)
    except ConnectionLost:
        pass
    else:
        assert 0 <= status.numSystemExceptions <= COUNT_MAX
        status.numSystemExceptions += 10
        assert math.isfinite(status.averageLatency)


def _metric(
    name: str, kind: int, value: float, labels: dict[str, str], bounds: list[float], counts: list[int]
) -> bytes:
    made = UserMetric(name=name, value=value, labels=labels, bounds=bounds, counts=counts, help=name)
    return made.SerializeToString() + bytes((2 << 3, kind))  # one that is no kind, too


NAMES = st.one_of(st.text(max_size=6), st.sampled_from(["a", "b", "tenant", "le", "a_total"]))
METRICS = st.builds(
    _metric, NAMES, st.integers(0, 5), st.floats(), st.dictionaries(NAMES, st.text(max_size=6), max_size=3),
    st.lists(st.floats(), max_size=3), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(METRICS, max_size=5), st.dictionaries(NAMES, st.floats(), max_size=4), st.binary(max_size=100))
def test_any_metrics_can_be_shown_or_are_a_lost_connection(
    metrics: list[bytes], recorded: dict[str, float], more: bytes
) -> None:
    data = MetricsData(metrics=map(UserMetric.FromString, metrics))
    data.userMetrics.update({f"{name}_{kind}": value for name, value in recorded.items() for kind in ("sum", "count")})
    try:
        read = read_metrics(data.SerializeToString() + more)
    except ConnectionLost:
        return
    assert shown(read).startswith(b"# HELP")


def shown(data: MetricsData) -> bytes:
    return page.render("c", [InstanceMetrics("one/code/f:0", FUNCTION, data)], [])


def test_metrics_of_another_name_than_a_context_makes_are_left_out() -> None:
    good = UserMetric(name="good", kind=UserMetric.COUNTER, value=1.0, labels={"color": "red"})
    bad = [
        UserMetric(name='x{tenant="two"} 1\ny', kind=UserMetric.GAUGE, value=1.0),
        UserMetric(name="steals", kind=UserMetric.GAUGE, value=1.0, labels={"tenant": "two"}),
        UserMetric(name="endless", kind=UserMetric.GAUGE, value=math.inf),
        UserMetric(name="short", kind=UserMetric.HISTOGRAM, bounds=[1.0], counts=[1]),
        UserMetric(name="below", kind=UserMetric.HISTOGRAM, bounds=[1.0], counts=[1, -1]),
    ]
    data = MetricsData(metrics=[good, *bad], receivedTotal=-5, avgProcessLatency=math.nan)
    data.userMetrics["kept_sum"] = 2.0
    data.userMetrics["lost_count"] = math.nan
    read = read_metrics(data.SerializeToString())
    assert [one.name for one in read.metrics] == ["good"]
    assert dict(read.userMetrics) == {"kept_sum": 2.0}
    assert (read.receivedTotal, read.avgProcessLatency) == (0, 0.0)


def test_as_many_metrics_and_exceptions_are_taken_as_an_instance_has() -> None:
    many = MetricsData(metrics=[UserMetric(name=f"m{number}", value=1.0) for number in range(5000)])
    many.userMetrics.update({f"m{number}_sum": 1.0 for number in range(20_000)})
    read = read_metrics(many.SerializeToString())
    assert len(read.metrics) == 1000
    assert len(read.userMetrics) == 5000
    status = FunctionStatus(failureException="x" * 1_000_000)
    for number in range(1000):
        status.latestUserExceptions.add(exceptionString=f"{number}" + "x" * 1000)
    taken = read_status(status.SerializeToString())
    assert len(taken.failureException) == 16_384
    assert len(taken.latestUserExceptions) == 10
    assert taken.latestUserExceptions[-1].exceptionString.startswith("999")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="m-") as directory:
        yield Path(directory)


@pytest.mark.parametrize("answer", [b"\xff" * 100, b"\0" * (ANSWER_BYTES_MAX + 1)], ids=["no record", "too long"])
async def test_instance_that_answers_with_something_else_is_one_that_does_not_answer(
    place: Path, answer: bytes
) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"GetFunctionStatus": handler}),))
    server.add_insecure_port(f"unix:{place}/sock")
    server.start()
    client = ControlClient(place / "sock", os.geteuid())
    try:
        with pytest.raises(ConnectionLost, match=r"bytes that are no|larger than max"):
            await client.status()
    finally:
        await client.close()
        await asyncio.to_thread(server.stop(0).wait)


@pytest.mark.parametrize("kind", ["link", "file", "of another user"])
async def test_worker_connects_to_no_socket_but_the_instances_own(place: Path, kind: str) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place / "other"))
        other.listen()
        if kind == "link":
            (place / "sock").symlink_to(place / "other")
        elif kind == "file":
            (place / "sock").touch()
        else:
            (place / "other").rename(place / "sock")
        user = os.geteuid() + (kind == "of another user")
        client = ControlClient(place / "sock", user)
        with pytest.raises(ConnectionLost, match=f"not a socket of user {user}|instance is starting"):
            await client.status()
        await client.close()
        other.settimeout(0)
        with pytest.raises(BlockingIOError):
            other.accept()
