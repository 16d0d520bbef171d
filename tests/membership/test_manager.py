"""Who leads, as the membership manager hears it from the broker and reads it from the statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from magnetar.membership.manager import SUBSCRIPTION, Member, MembershipManager

ME = Member("me", "localhost", 1)
OTHER = Member("other", "localhost", 2)


class Broker:
    """Says who is active when asked, and sometimes by itself."""

    def __init__(self) -> None:
        self.active = OTHER
        self.tell: Callable[[bool], None] = lambda _: None
        self.while_asked: Callable[[], None] = lambda: None

    async def join(self, name: str, tell: Callable[[bool], None]) -> Broker:
        assert name == ME.consumer_name
        self.tell = tell
        return self

    async def stats(self) -> Mapping[str, Any]:
        active = self.active
        self.while_asked()
        consumers = [{"consumerName": member.consumer_name} for member in (ME, OTHER)]
        return {"subscriptions": {SUBSCRIPTION: {"consumers": consumers, "activeConsumerName": active.consumer_name}}}

    async def close(self) -> None:
        pass


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
async def heard(broker: Broker) -> list[bool]:
    return []


@pytest.fixture
async def manager(broker: Broker, heard: list[bool]) -> MembershipManager:
    manager = MembershipManager(ME, broker.join, broker.stats, heard.append)
    await manager.start()
    return manager


async def test_worker_leads_at_once_when_the_statistics_say_so(broker: Broker, heard: list[bool]) -> None:
    broker.active = ME
    await MembershipManager(ME, broker.join, broker.stats, heard.append).start()
    assert heard == [True]


async def test_statistics_end_leadership_before_the_broker_tells(
    broker: Broker, manager: MembershipManager, heard: list[bool]
) -> None:
    broker.tell(True)
    await manager.roster()
    broker.tell(False)
    assert heard == [True, False]


async def test_worker_leads_again_when_its_successor_died_before_the_broker_told_of_it(
    broker: Broker, manager: MembershipManager, heard: list[bool]
) -> None:
    broker.tell(True)
    await manager.roster()
    broker.active = ME
    await manager.roster()
    assert heard == [True, False, True]


async def test_what_the_broker_tells_while_statistics_are_read_is_newer(
    broker: Broker, manager: MembershipManager, heard: list[bool]
) -> None:
    broker.while_asked = lambda: broker.tell(True)
    await manager.roster()
    assert heard == [True]


async def test_nobody_leads_who_has_left(broker: Broker, manager: MembershipManager, heard: list[bool]) -> None:
    broker.active = ME
    await manager.stop()
    await manager.roster()
    assert heard == []
