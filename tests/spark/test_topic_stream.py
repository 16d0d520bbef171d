"""What a stream finds in its topics, batch by batch, on a broker in this process. PySpark, but no session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from magnetar.client import Client
from magnetar.errors import ConsumerBusy, DataLoss, TopicNotFound
from magnetar.spark.source.streaming import watch
from magnetar.spark.source.streaming.admission import NO_LIMITS
from magnetar.spark.source.streaming.options import stream_options
from magnetar.spark.source.streaming.places import Places, to_json
from magnetar.spark.source.streaming.stream import TopicStream

from tests.spark.conftest import BadNetwork, SmallLedgers
from tests.spark.topics import fill, numbered, read_all
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def _start(options: dict[str, str]) -> dict[str, str]:
    return {} if any(name.startswith("starting") for name in options) else {"startingOffsets": "earliest"}


class Query:
    """A query as Spark runs it: it plans a batch, reads it, and goes on at its end."""

    def __init__(self, service_url: str, **options: str) -> None:
        self.now_s = 1000.0
        self.options = stream_options({"service.url": service_url, **_start(options), **options})
        self.stream = TopicStream(self.options, lambda: self.now_s)
        self.place: Places | None = None

    def restart(self) -> None:
        """Go on in another process, as after a kill: all it has is the place."""
        self.stream.close()
        self.stream = TopicStream(self.options, lambda: self.now_s)
        self.stream.initial()  # Spark asks for it though it needs none

    def batch(self, *, is_limited: bool = True) -> list[bytes]:
        """The values of the next batch."""
        self.now_s += 2  # so that new topics are looked for
        if self.place is None:
            self.place = self.stream.initial()
        end = self.stream.latest(self.place, self.options.limits if is_limited else NO_LIMITS)
        ranges = self.stream.ranges(self.place, end)
        found = [row["value"] for row in read_all(self.options.read, ranges)]
        self.place = end
        return found

    def batches(self) -> list[list[bytes]]:
        """All that there is."""
        found = []
        while batch := self.batch():
            found.append(batch)
        return found


Queries = Callable[..., Query]


@pytest.fixture
def begin(broker: SmallLedgers) -> Iterator[Queries]:
    """Begins queries, and ends them."""
    made: list[Query] = []

    def begin(service_url: str = broker.service_url, **options: str) -> Query:
        made.append(Query(service_url, **options))
        return made[-1]

    yield begin
    for one in made:
        one.stream.close()


@pytest.fixture
def query(broker: SmallLedgers, topic: str, begin: Queries) -> Query:
    fill(broker.service_url, topic, [])
    return begin(topic=topic)


def put(broker: SmallLedgers, topic: str, first: int, count: int, per_entry: int = 1) -> list[bytes]:
    values = [b"%d" % number for number in range(first, first + count)]
    fill(broker.service_url, topic, [values[at : at + per_entry] for at in range(0, count, per_entry)])
    return values


def test_a_stream_reads_what_comes_over_many_ledgers(broker: SmallLedgers, topic: str, query: Query) -> None:
    assert query.batch() == []
    seen = []
    for first, count in ((0, 3), (3, 30), (33, 1), (34, 25)):
        put(broker, topic, first, count)
        seen += query.batch()
        assert query.batch() == []
    assert seen == numbered(59)


def test_limits_cut_a_backlog_into_batches(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    put(broker, topic, 0, 45)
    query = begin(topic=topic, maxOffsetsPerTrigger="10")
    assert [len(batch) for batch in query.batches()] == [10, 10, 10, 10, 5]
    of_bytes = begin(topic=topic, maxBytesPerTrigger="500")
    batches = of_bytes.batches()
    assert 3 < len(batches) < 45
    assert [value for batch in batches for value in batch] == numbered(45)
    everything = begin(topic=topic, maxOffsetsPerTrigger="10")
    assert everything.batch(is_limited=False) == numbered(45)


def test_limits_count_messages_and_cut_no_entry(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    put(broker, topic, 0, 100, per_entry=5)
    query = begin(topic=topic, maxOffsetsPerTrigger="12")
    assert {len(batch) for batch in query.batches()} == {10}
    one = begin(topic=topic, maxOffsetsPerTrigger="1")
    assert len(one.batch()) == 5  # no limit stops a stream


def test_a_limit_is_shared_by_the_partitions(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    broker.create_partitioned(topic, 3)
    for partition, count in enumerate((60, 30, 10)):
        put(broker, f"{topic}-partition-{partition}", 1000 * partition, count)
    query = begin(topic=topic, maxOffsetsPerTrigger="10")
    batch = query.batch()
    assert [sum(int(value) // 1000 == partition for value in batch) for partition in range(3)] == [6, 3, 1]
    assert query.place is not None
    assert list(to_json(query.place)) == [topic]
    assert list(to_json(query.place)[topic]) == ["0", "1", "2"]
    assert sum(len(batch) for batch in query.batches()) == 90


def test_a_batch_waits_for_its_least_number(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    fill(broker.service_url, topic, [])
    query = begin(topic=topic, minOffsetsPerTrigger="5", maxTriggerDelay="60s")
    put(broker, topic, 0, 1)
    assert query.batch() == numbered(1)  # the first one of a process does not wait
    put(broker, topic, 1, 4)
    assert query.batch() == []
    put(broker, topic, 5, 1)
    assert query.batch() == [b"1", b"2", b"3", b"4", b"5"]
    put(broker, topic, 6, 1)
    assert query.batch() == []
    query.now_s += 60
    assert query.batch() == [b"6"]
    put(broker, topic, 7, 1)
    query.stream.fix_end()
    assert query.batch() == [b"7"]  # who wants what is available does not wait


def test_a_run_over_what_is_available_ends_there(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    put(broker, topic, 0, 25)
    query = begin(topic=topic, maxOffsetsPerTrigger="10")
    query.stream.fix_end()
    assert query.batch() == numbered(10)
    put(broker, topic, 25, 5)
    put(broker, f"{topic}-more", 0, 5)
    assert [len(batch) for batch in query.batches()] == [10, 5]
    query.restart()
    assert query.batch() == [b"25", b"26", b"27", b"28", b"29"]


def test_a_partition_that_nobody_has_published_to_is_waited_for(
    broker: SmallLedgers, topic: str, begin: Queries
) -> None:
    broker.create_partitioned(topic, 2)
    put(broker, f"{topic}-partition-1", 0, 3)
    query = begin(topic=topic, predefinedSubscription="spark")
    query.stream.fix_end()
    assert query.batches() == [numbered(3)]
    query.restart()
    put(broker, f"{topic}-partition-0", 3, 1)
    assert query.batches() == [[b"3"]]


def test_latest_is_where_it_was_when_it_was_first_asked_for(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    put(broker, topic, 0, 3)
    query = begin(topic=topic, startingOffsets="latest")
    first = query.stream.initial()
    put(broker, topic, 3, 2)
    assert query.stream.initial() == first
    assert query.batch() == [b"3", b"4"]


def test_each_partition_begins_where_the_options_say(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    broker.create_partitioned(topic, 4)
    for partition in range(4):
        put(broker, f"{topic}-partition-{partition}", 10 * partition, 5)
    probe = begin(topic=f"{topic}-partition-1").stream.initial()[f"{topic}-partition-1"]
    text = f'{{"{topic}": {{"0": "latest", "1": "{probe.ledger_id}:3", "2": -2}}}}'
    query = begin(topic=topic, startingOffsets=text)
    assert sorted(map(int, query.batch())) == [13, 14, 20, 21, 22, 23, 24, 30, 31, 32, 33, 34]


def test_times_begin_per_partition(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    broker.create_partitioned(topic, 2)
    for partition in range(2):
        put(broker, f"{topic}-partition-{partition}", 10 * partition, 5)
    times = f'{{"{topic}": {{"0": 1, "1": 4102444800000}}}}'
    query = begin(topic=topic, startingOffsetsByTimestamp=times)
    assert query.batch() == numbered(5)
    put(broker, f"{topic}-partition-1", 15, 1)
    assert query.batch() == [b"15"]


def test_new_partitions_and_topics_join_from_their_beginning(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    broker.create_partitioned(topic, 1)
    local = topic.rpartition("/")[2]
    query = begin(subscribePattern=f"{local}(-new)?", startingOffsets="latest")
    assert query.batch() == []
    broker.add_partitions(topic, 2)
    put(broker, f"{topic}-partition-1", 0, 3)
    assert query.batch() == numbered(3)
    put(broker, f"{topic}-new", 3, 2)
    assert query.batch() == [b"3", b"4"]
    put(broker, f"{topic}-newer", 5, 2)
    assert query.batch() == []


def test_a_pattern_may_match_nothing_yet(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    query = begin(topicsPattern=topic)
    assert query.batch() == []
    put(broker, topic, 0, 2)
    assert query.batch() == numbered(2)
    missing = begin(topic=f"{topic}-missing")
    with pytest.raises(TopicNotFound):
        missing.batch()
    assert not broker.exists(f"{topic}-missing")


def test_assigned_partitions_are_read_and_no_others(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    broker.create_partitioned(topic, 3)
    for partition in range(3):
        put(broker, f"{topic}-partition-{partition}", 10 * partition, 2)
    query = begin(assign=f'{{"{topic}": [0, 2]}}')
    assert query.batch() == [b"0", b"1", b"20", b"21"]


def test_what_retention_has_taken_before_it_was_read_is_a_loss(
    broker: SmallLedgers, topic: str, query: Query, begin: Queries
) -> None:
    put(broker, topic, 0, 5)
    query.batch()
    put(broker, topic, 5, 20)
    assert broker.trim(topic)
    with pytest.raises(DataLoss, match=r"is next: the messages between them may be lost.*; set failOnDataLoss=false"):
        query.batch()
    lenient = begin(topic=topic, failOnDataLoss="false")
    lenient.place = query.place
    found = lenient.batch()
    assert 0 < len(found) < 20
    assert found == numbered(25)[-len(found) :]


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "pattern"])
def test_two_lives_of_one_name_are_told_apart(broker: SmallLedgers, topic: str, is_named: bool, begin: Queries) -> None:
    put(broker, topic, 0, 5)
    what = {"topic": topic} if is_named else {"topicsPattern": topic}
    strict, lenient = (begin(**what, failOnDataLoss=flag) for flag in ("true", "false"))
    assert strict.batch() == lenient.batch() == numbered(5)
    broker.delete(topic)
    with pytest.raises(DataLoss, match="no longer exists"):
        strict.batch()
    before = strict.place
    assert lenient.batch() == []
    put(broker, topic, 100, 8)
    strict.place = before
    strict.restart()
    with pytest.raises(DataLoss, match="or the topic was deleted and recreated"):
        strict.batch()
    assert lenient.batch() == [b"%d" % number for number in range(100, 108)]
    lenient.place = before
    lenient.restart()
    assert lenient.batch() == [b"%d" % number for number in range(100, 108)]


def test_a_batch_that_was_planned_is_the_same_after_a_restart(broker: SmallLedgers, topic: str, query: Query) -> None:
    put(broker, topic, 0, 25)
    start = query.stream.initial()
    end = query.stream.latest(start)
    first = read_all(query.options.read, query.stream.ranges(start, end))
    put(broker, topic, 25, 25)
    query.restart()
    assert query.stream.ranges(end, end) == []
    assert read_all(query.options.read, query.stream.ranges(start, end)) == first
    assert [row["value"] for row in first] == numbered(25)


def test_a_predefined_subscription_shows_and_holds_what_is_not_read(
    broker: SmallLedgers, topic: str, begin: Queries
) -> None:
    put(broker, topic, 0, 25)
    query = begin(topic=topic, predefinedSubscription="spark", maxOffsetsPerTrigger="10")
    assert query.batch() == numbered(10)
    assert broker.backlog(topic, "spark") == 25  # Spark has not committed it
    query.batch()
    assert broker.backlog(topic, "spark") == 15
    assert query.place is not None
    query.stream.acknowledge(query.place)
    wait_for(lambda: broker.backlog(topic, "spark") == 5, "acknowledgement")
    query.stream.close()
    put(broker, topic, 25, 10)
    assert broker.backlog(topic, "spark") == 15
    query.restart()
    assert [value for batch in query.batches() for value in batch] == numbered(35)[20:]
    assert broker.backlog(topic, "spark") == 0


def test_a_subscription_that_held_everything_makes_a_gap_no_loss(
    broker: SmallLedgers, topic: str, begin: Queries
) -> None:
    put(broker, topic, 0, 10)  # a whole ledger
    query = begin(topic=topic, predefinedSubscription="spark")
    query.batches()
    assert broker.trim(topic)
    for first in (10, 20):
        put(broker, topic, first, 10)
        assert query.batch() == [b"%d" % number for number in range(first, first + 10)]
        assert query.batch() == []
        assert broker.trim(topic)
        query.restart()


def test_a_subscription_that_was_deleted_has_held_nothing(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    put(broker, topic, 0, 10)
    query = begin(topic=topic, predefinedSubscription="spark")
    query.batches()
    query.stream.close()
    broker.unsubscribe(topic, "spark")
    put(broker, topic, 10, 15)
    assert broker.trim(topic)
    query.restart()
    with pytest.raises(DataLoss, match="may be lost"):
        query.batch()


def test_a_subscription_goes_to_where_the_checkpoint_is(broker: SmallLedgers, topic: str, begin: Queries) -> None:
    put(broker, topic, 0, 20)
    ahead = begin(topic=topic, predefinedSubscription="spark", maxOffsetsPerTrigger="10")
    ahead.batch()
    restored = ahead.place
    ahead.batches()
    assert broker.backlog(topic, "spark") == 0
    ahead.place = restored
    ahead.restart()
    assert ahead.batch() == numbered(20)[10:]
    assert broker.backlog(topic, "spark") == 10


def test_a_subscription_has_one_query(
    broker: SmallLedgers, topic: str, monkeypatch: pytest.MonkeyPatch, begin: Queries
) -> None:
    put(broker, topic, 0, 1)
    monkeypatch.setattr(watch, "BUSY_TIMEOUT_S", 0.1)
    with Client(broker.service_url) as client:
        client.subscribe(topic, "spark")
        with pytest.raises(ConsumerBusy, match="set a separate predefinedSubscription for each query"):
            begin(topic=topic, predefinedSubscription="spark").batch()


def test_the_prefix_names_subscriptions_that_go_with_the_query(
    broker: SmallLedgers, topic: str, begin: Queries
) -> None:
    put(broker, topic, 0, 5)
    query = begin(topic=topic, subscriptionPrefix="nightly")
    query.batch()
    query.batch()
    [(name, backlog)] = broker.backlogs(topic).items()
    assert (name.startswith("nightly-"), backlog) == (True, 0)
    query.stream.close()
    wait_for(lambda: not broker.backlogs(topic), "end of the subscription")


def test_a_lost_connection_is_made_anew(broker: SmallLedgers, topic: str, network: BadNetwork, begin: Queries) -> None:
    put(broker, topic, 0, 5)
    query = begin(network.service_url, topic=topic, predefinedSubscription="spark")
    assert query.batch() == numbered(5)
    network.cut()
    put(broker, topic, 5, 5)
    assert query.batch() == [b"%d" % number for number in range(5, 10)]
