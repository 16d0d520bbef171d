"""Who is there and who leads, from topic statistics and consumer names."""

from collections.abc import Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import RequestRefused
from magnetar.membership.grace_period import GracePeriod
from magnetar.membership.manager import TLS_PORT, Member, MembershipManager, parse_member, read_roster

PRINTABLE = st.text(min_size=1, max_size=255).filter(str.isprintable)


@given(worker_id=PRINTABLE, host=st.from_regex(r"[a-z0-9.-]+", fullmatch=True), port=st.integers(1, 65535))
def test_a_name_is_read_from_the_right(worker_id: str, host: str, port: int) -> None:
    member = Member(worker_id, host, port)
    assert parse_member(member.consumer_name) == member


@pytest.mark.parametrize(
    "name",
    [
        "", "w", "w:h", "w:h:x", "w:h:0", "w:h:65536", ":h:1", "w::1", "w:h:²", "w:h:" + "1" * 5000, "w" * 256 + ":h:1",
        "w:" + "h" * 254 + ":1", "w:ho st:1", "w:h/x:1", "w:a@b:1", "w:h\n:1", "\x1b[2J:h:1", "w\udcff:h:1",
        "w:h\udcff:1",        "w:[::1/]:1", "w:[]:1",
    ],
)  # fmt: skip
def test_other_names_are_no_members(name: str) -> None:
    assert parse_member(name) is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(st.characters(), max_size=30) | st.tuples(st.text(max_size=9), st.text(max_size=9), st.integers()).map(
    lambda parts: ":".join(map(str, parts))
)


@given(
    consumers=ANYTHING | st.lists(st.fixed_dictionaries({"consumerName": ANYTHING | NAMES, "metadata": ANYTHING})),
    active=ANYTHING | NAMES,
)
def test_whatever_consumes_the_roster_can_be_read_and_asked(consumers: object, active: object) -> None:
    """Whatever a stranger calls itself: who is there can be read, and each member has an address to be asked at."""
    shown = {"subscriptions": {"participants": {"consumers": consumers, "activeConsumerName": active}}}
    roster = read_roster(shown)
    for member in roster.members:
        assert member.worker_id.isprintable()
        assert httpx.URL(member.url).port in (member.port, None)
        member.worker_id.encode()


@given(ANYTHING)
def test_statistics_of_any_shape_show_nobody(subscriptions: object) -> None:
    assert read_roster({"subscriptions": subscriptions}).members == ()


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


def test_port_with_tls_is_told_beside_the_name_which_earlier_workers_read() -> None:
    both = parse_member("w:h:6750", {TLS_PORT: "6751"})
    assert both == parse_member("w:h:6750") == Member("w", "h", 6750)
    assert both is not None
    assert (both.url, both.plain_url, both.is_tls_only) == ("https://h:6751", "http://h:6750", False)
    alone = parse_member("w:[::1]:6751", {TLS_PORT: "6751"})
    assert alone is not None
    assert (alone.url, alone.is_tls_only) == ("https://[::1]:6751", True)


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "²", "9" * 5000, "x", "6751\n"])
def test_what_is_no_port_tells_of_no_tls(text: str) -> None:
    member = parse_member("w:h:6750", {TLS_PORT: text})
    assert member is not None
    assert member.url == "http://h:6750"


def test_leader_is_told_by_its_name_with_the_port_of_its_property() -> None:
    consumers = [{"consumerName": "a:h:1", "metadata": {TLS_PORT: "2"}}, {"consumerName": "b:h:3"}]
    found = {"subscriptions": {"participants": {"activeConsumerName": "a:h:1", "consumers": consumers}}}
    leader = read_roster(found).leader
    assert leader is not None
    assert leader.url == "https://h:2"


async def test_worker_with_tls_alone_asks_no_worker_without() -> None:
    async def join(name: str, on_active_change: Callable[[bool], None]) -> OpenConsumer:
        return OpenConsumer()

    async def read_stats() -> dict[str, object]:
        return {}

    both, alone, plain = Member("both", "h", 1, 2), Member("alone", "h", 3, 3), Member("plain", "h", 4)
    for me, url in ((both, "https://h:2"), (plain, "http://h:1")):
        manager = MembershipManager(me, join, read_stats, lambda is_leader: None)
        assert [manager.url_of(one) for one in (both, alone, plain)] == [url, "https://h:3", "http://h:4"]
    manager = MembershipManager(alone, join, read_stats, lambda is_leader: None)
    assert manager.url_of(both) == "https://h:2"
    with pytest.raises(
        RequestRefused, match=r"^worker plain at http://h:4 has no TLS, .* set tlsEnabled and"
    ) as caught:
        manager.url_of(plain)
    assert caught.value.status == 503


def test_absence_counts_after_the_timeout_and_starts_anew_after_a_return() -> None:
    grace = GracePeriod(2.0)
    assert grace.granted("b", now=10.0) == {"b"}
    assert grace.granted("b", now=11.9) == {"b"}
    assert grace.granted("b", now=12.0) == frozenset()
    assert grace.granted("", now=13.0) == frozenset()
    assert grace.granted("b", now=14.0) == {"b"}


def test_absence_starts_anew_when_the_leader_was_cut_off() -> None:
    grace = GracePeriod(2.0)
    grace.granted("b", now=10.0)
    grace.restart()
    assert grace.granted("b", now=100.0) == {"b"}


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
