"""Requests on their way to the leader: followed through changes, never lost, never doubled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from magnetar.errors import RequestRefused
from magnetar.membership.manager import Member, MembershipManager
from magnetar.metadata.functions import FunctionMetadataManager, FunctionRequest
from magnetar.wire.functions_pb2 import FunctionDetails, FunctionMetaData
from magnetar.worker.cluster.hand_over import REQUEST_ID_HEADER, HandOver

from tests.metadata.memory_log import MemoryLog

ME = Member("me", "h", 1)
OTHER = Member("other", "h", 2)
REQUEST = FunctionRequest(
    FunctionMetaData(functionDetails=FunctionDetails(tenant="t", namespace="n", name="f")), "the-id"
)


class NoConsumer:
    async def close(self) -> None:
        return None


async def hand_over(
    answer: Callable[[httpx.Request], httpx.Response], leader: Member | None, timeout_s: float
) -> tuple[HandOver, FunctionMetadataManager]:
    """Return a follower's hand-over to a leader that answers as given."""

    async def join(name: str, on_active_change: Callable[[bool], None]) -> NoConsumer:
        return NoConsumer()

    async def stats() -> Mapping[str, Any]:
        consumers = [{"consumerName": member.consumer_name} for member in (ME, OTHER)]
        active = leader.consumer_name if leader else ""
        return {"subscriptions": {"participants": {"activeConsumerName": active, "consumers": consumers}}}

    metadata = FunctionMetadataManager(MemoryLog(), lambda change: None)
    membership = MembershipManager(ME, join, stats, lambda is_leader: None)
    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return HandOver(metadata, membership, http, timeout_s), metadata


async def test_a_request_is_repeated_with_its_id_until_a_leader_is_ready() -> None:
    ids: list[str] = []
    failures: list[httpx.Response | httpx.ConnectError] = [
        httpx.ConnectError("gone"),
        httpx.Response(503, json={"reason": "Leader not yet ready"}),
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        ids.append(request.headers[REQUEST_ID_HEADER])
        if failures:
            failure = failures.pop(0)
            if isinstance(failure, httpx.ConnectError):
                raise failure
            return failure
        assert request.url.path == "/admin/v3/functions/leader/t/n/f"
        record = {"version": "0", "requestId": REQUEST.request_id}
        metadata.log.apply((1, 0), "t/n/f", REQUEST.metadata.SerializeToString(), record)
        return httpx.Response(204)

    work, metadata = await hand_over(answer, OTHER, timeout_s=5)
    await work.submit(REQUEST)
    assert ids == ["the-id"] * 3


async def test_what_the_leader_refuses_is_refused_with_its_words() -> None:
    work, _ = await hand_over(lambda request: httpx.Response(400, json={"reason": "out of date"}), OTHER, timeout_s=5)
    with pytest.raises(RequestRefused, match=r"^out of date$") as caught:
        await work.submit(REQUEST)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("leader", "reason"),
    [(None, "no worker is the leader"), (ME, "this worker is not ready to lead yet"), (OTHER, "busy")],
)
async def test_without_a_leader_it_ends_with_503_and_the_reason(leader: Member | None, reason: str) -> None:
    work, _ = await hand_over(lambda request: httpx.Response(500, content=json.dumps({"reason": "busy"})), leader, 0.3)
    with pytest.raises(
        RequestRefused, match=rf"^Leader not yet ready\. Please retry again; for 0\.3 s: {reason}$"
    ) as caught:
        await work.submit(REQUEST)
    assert caught.value.status == 503
