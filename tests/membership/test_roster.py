"""Who is there and who leads, from topic statistics and consumer names."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.membership.absence import AbsenceClock
from magnetar.membership.manager import MembershipManager
from magnetar.membership.roster import Member, parse_member, read_roster


@given(worker_id=st.text(min_size=1), host=st.from_regex(r"[a-z0-9.-]+", fullmatch=True), port=st.integers(1, 65535))
def test_a_name_is_read_from_the_right(worker_id: str, host: str, port: int) -> None:
    member = Member(worker_id, host, port)
    assert parse_member(member.consumer_name) == member


@pytest.mark.parametrize("name", ["", "w", "w:h", "w:h:x", "w:h:0", "w:h:65536", ":h:1", "w::1", "w:h:²"])
def test_other_names_are_no_members(name: str) -> None:
    assert parse_member(name) is None


def test_an_address_of_version_6_is_in_brackets() -> None:
    assert parse_member("w:1:[::1]:80") == Member("w:1", "::1", 80)
    assert Member("w", "::1", 80).consumer_name == "w:[::1]:80"
    assert Member("w", "::1", 80).url == "http://[::1]:80"


def stats(active: str, *names: str) -> dict[str, object]:
    consumers = [{"consumerName": name} for name in names]
    return {"subscriptions": {"participants": {"activeConsumerName": active, "consumers": consumers}}}


def test_the_active_consumer_leads() -> None:
    roster = read_roster(stats("b:h:2", "b:h:2", "a:h:1", "stranger"))
    assert [member.worker_id for member in roster.members] == ["a", "b"]
    assert roster.leader == Member("b", "h", 2)
    assert roster.member("a") == Member("a", "h", 1)
    assert roster.member("c") is None


@pytest.mark.parametrize("topic_stats", [{}, {"subscriptions": {}}, stats(""), stats("gone:h:1", "a:h:1")])
def test_nobody_leads_without_an_active_member(topic_stats: dict[str, object]) -> None:
    assert read_roster(topic_stats).leader is None


def test_absence_counts_after_the_timeout_and_starts_anew_after_a_return() -> None:
    clock = AbsenceClock(2.0)
    assert clock.excused("ab", "a", now=10.0) == {"b"}
    assert clock.excused("ab", "a", now=11.9) == {"b"}
    assert clock.excused("ab", "a", now=12.0) == frozenset()
    assert clock.excused("ab", "ab", now=13.0) == frozenset()
    assert clock.excused("ab", "a", now=14.0) == {"b"}


def test_absence_starts_anew_when_the_leader_was_cut_off() -> None:
    clock = AbsenceClock(2.0)
    clock.excused("b", "", now=10.0)
    clock.restart()
    assert clock.excused("b", "", now=100.0) == {"b"}


class OpenConsumer:
    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


async def test_leadership_is_told_once_per_change_and_ends_with_the_membership() -> None:
    told: list[bool] = []
    consumer = OpenConsumer()
    heard: list[tuple[str, Callable[[bool], None]]] = []

    async def join(name: str, on_active_change: Callable[[bool], None]) -> OpenConsumer:
        heard.append((name, on_active_change))
        return consumer

    async def read_stats() -> dict[str, object]:
        return stats("a:h:1", "a:h:1")

    manager = MembershipManager(Member("a", "h", 1), join, read_stats, told.append)
    await manager.start()
    name, on_active_change = heard[0]
    assert name == "a:h:1"
    for is_active in (True, True, False, True):
        on_active_change(is_active)
    assert manager.is_leader
    assert (await manager.roster()).leader == manager.me
    await manager.stop()
    assert consumer.is_closed
    assert told == [True, False, True, False]
