"""The pure parts: what they promise on any input."""

from __future__ import annotations

import asyncio
import random
from asyncio import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client import FileKeyReader, MessageId, OutgoingMessage, ProducerConfig, encode_entry
from magnetar.client.config import ClientConfig, ConsumerConfig
from magnetar.client.connections.service_url import HostPort, ServiceUrl, parse_service_url
from magnetar.client.consumers.ack_tracker import AckTracker, bits_of, words_of
from magnetar.client.consumers.negative_acks import NegativeAcks
from magnetar.client.consumers.receive_queue import Permits
from magnetar.client.consumers.start import StartPosition
from magnetar.client.producers.open_batch import OpenBatch
from magnetar.client.producers.pending_queue import PendingQueue, PendingSend, Verdict
from magnetar.client.producers.routing import key_partition, make_router
from magnetar.errors import InvalidConfig
from magnetar.wire import ack_set
from magnetar.wire.batch import decode_batch
from magnetar.wire.pulsar_api_pb2 import SingleMessageMetadata

POSITIONS = st.tuples(st.integers(0, 3), st.integers(0, 5))
FULL = [(1 << size) - 1 for size in range(8)]


# -- acknowledgements ---------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 400), max_size=20))
def test_bits_and_words_of_an_ack_set_are_the_same(indexes: list[int]) -> None:
    words = ack_set.from_wanted(indexes)
    assert words_of(bits_of(words)) == words
    assert bits_of(words) == sum(1 << index for index in set(indexes))


@st.composite
def acknowledgements(draw: st.DrawFn) -> list[tuple[str, Any]]:
    step = st.one_of(
        st.tuples(st.just("index"), st.tuples(POSITIONS, st.integers(0, 4))),
        st.tuples(st.just("entry"), POSITIONS),
        st.tuples(st.just("cumulative"), POSITIONS),
        st.tuples(st.just("take"), st.none()),
    )
    return draw(st.lists(step, max_size=40))


@given(acknowledgements())
def test_what_is_sent_comes_to_what_was_acknowledged_on_both_kinds_of_broker(steps: list[tuple[str, Any]]) -> None:
    """Invariant: a broker with and one without ack sets end with the same whole entries; the first knows the parts."""
    size = 5
    tracker = AckTracker()
    wanted: dict[tuple[int, int], int] = {(ledger, entry): FULL[size] for ledger in range(4) for entry in range(6)}
    with_sets = dict(wanted)
    without_sets = dict(wanted)

    def deliver() -> None:
        for is_cumulative, ids in tracker.take():
            for ledger, entry, words in ids:
                if is_cumulative:
                    covered = dict.fromkeys((position for position in wanted if position <= (ledger, entry)), 0)
                    with_sets.update(covered)
                    without_sets.update(covered)
                else:
                    with_sets[ledger, entry] &= bits_of(words)
                    if not words:
                        without_sets[ledger, entry] = 0
        assert tracker.buffered == 0

    for kind, value in steps:
        match kind:
            case "index":
                position, index = value
                wanted[position] &= ~(1 << index)
                tracker.add_index(position, index, size)
            case "entry":
                wanted[value] = 0
                tracker.add_entry(value)
            case "cumulative":
                wanted.update({position: 0 for position in wanted if position <= value})
                tracker.add_cumulative(value)
            case "take":
                deliver()
        for position, bits in wanted.items():
            if tracker.is_acknowledged(position):
                assert bits == 0
    deliver()
    assert with_sets == wanted
    assert {p for p, bits in without_sets.items() if not bits} == {p for p, bits in wanted.items() if not bits}


def test_the_tracker_forgets_the_oldest_partly_acknowledged_entry() -> None:
    tracker = AckTracker(max_partial=3)
    for entry in range(5):
        tracker.add_index((1, entry), 0, 2)
    assert [tracker.wanted((1, entry)) for entry in range(5)] == [None, None, 0b10, 0b10, 0b10]


def test_an_acknowledged_entry_is_not_taken_back_by_one_of_its_messages() -> None:
    tracker = AckTracker()
    tracker.add_entry((1, 1))
    assert tracker.add_index((1, 1), 0, 3)
    assert tracker.take() == [(False, [(1, 1, ())])]
    tracker.set_wanted((1, 2), 0b110)
    assert not tracker.add_index((1, 2), 1, 3)
    assert tracker.add_index((1, 2), 2, 3)  # index 0 was acknowledged before, as the broker said
    tracker.forget((1, 2))
    assert tracker.take() == []
    tracker.add_cumulative((1, 5))
    tracker.add_entry((1, 3))
    assert tracker.take() == [(True, [(1, 5, ())])]


@given(st.lists(st.tuples(POSITIONS, st.sampled_from(["add", "discard", "wait"])), max_size=40))
def test_negative_acknowledgements_become_due_after_their_delay(steps: list[tuple[Any, str]]) -> None:
    negative = NegativeAcks(10.0)
    expected: dict[tuple[int, int], float] = {}
    now_s = 0.0
    for position, kind in steps:
        if kind == "add":
            negative.add(position, now_s)
            expected[position] = now_s + 10
        elif kind == "discard":
            negative.discard(position)
            expected.pop(position, None)
        else:
            now_s += 4
            due = {position for position, due_s in expected.items() if due_s <= now_s}
            assert set(negative.pop_due(now_s)) == due
            for position in due:
                del expected[position]
        assert len(negative) == len(expected)
        assert negative.next_due_s == min(expected.values(), default=None)
    negative.discard_up_to((2, 2))
    assert len(negative) == sum(position > (2, 2) for position in expected)
    negative.clear()
    assert negative.next_due_s is None


# -- flow ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 50), st.lists(st.integers(1, 30), max_size=100))
def test_permits_neither_leak_nor_dry_up(size: int, entries: list[int]) -> None:
    permits = Permits(size)
    granted = permits.restart()
    charged = 0
    for count in entries:
        if granted <= charged:  # the broker sends an entry while it has any permit left
            granted += permits.demand()
        assert granted > charged, "the stream has run dry"
        charged += count
        granted += permits.release(count)
        assert granted - charged <= max(size, 1)
    assert permits.restart() == size


# -- sending ------------------------------------------------------------------------------------------------------


def pending(sequence_id: int, count: int = 1) -> PendingSend:
    return PendingSend(sequence_id, sequence_id + count - 1, b"head", b"x" * count, count, 0.0)


@given(st.lists(st.integers(1, 5), max_size=20), st.data())
def test_receipts_are_only_taken_for_the_head(counts: list[int], data: st.DataObject) -> None:
    queue = PendingQueue()
    sends = []
    sequence_id = 0
    for count in counts:
        sends.append(pending(sequence_id, count))
        queue.append(sends[-1])
        sequence_id += count
    assert (queue.messages, queue.bytes, len(queue), list(queue)) == (sum(counts), sum(counts), len(sends), sends)
    for send in sends:
        asked = data.draw(st.integers(0, sequence_id))
        verdict = queue.judge(asked)
        assert (verdict is Verdict.HEAD) == (send.sequence_id <= asked <= send.last_sequence_id)
        assert (verdict is Verdict.STALE) == (asked < send.sequence_id)
        assert (queue.head, queue.tail) == (send, sends[-1])
        taken = queue.take(asked)
        assert taken is (send if verdict is Verdict.HEAD else None)
        assert taken is send or queue.pop() is send
    assert queue.take(0) is None
    assert queue.judge(0) is Verdict.STALE
    assert (queue.messages, queue.bytes, queue.head, queue.tail, queue.pop_all()) == (0, 0, None, None, [])


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.integers(1, 10), st.integers(1, 60))
def test_batches_keep_both_bounds_and_every_message(payloads: list[bytes], max_messages: int, max_bytes: int) -> None:
    loop = asyncio.new_event_loop()
    try:
        batch = OpenBatch(max_messages, max_bytes)
        out: list[bytes] = []

        def leave() -> None:
            count = len(batch)
            first = len(out)
            metadata = batch.metadata("p", 5)
            assert metadata.sequence_id == first
            assert metadata.num_messages_in_batch == count <= max_messages
            assert (metadata.highest_sequence_id == first + count - 1) or count == 1
            assert sum(map(len, batch.payloads)) == batch.bytes
            assert batch.bytes <= max_bytes or count == 1
            got, headers = decode_batch(batch.encode(), count)
            assert [header.sequence_id for header in headers] == list(range(first, first + count))
            out.extend(got)
            assert len(batch.take_futures()) == count
            assert len(batch) == batch.bytes == 0

        for index, payload in enumerate(payloads):
            if not batch.has_room_for(len(payload)):
                leave()
            future: Future[MessageId] = loop.create_future()
            batch.add(SingleMessageMetadata(sequence_id=index), payload, future)
            if batch.is_full:
                leave()
        if len(batch):
            leave()
        assert out == payloads
    finally:
        loop.close()


def test_an_entry_needs_a_message() -> None:
    with pytest.raises(ValueError, match="at least one message"):
        encode_entry([])


# -- routing ------------------------------------------------------------------------------------------------------


@given(st.text(max_size=20), st.integers(1, 50), st.sampled_from(["JavaStringHash", "Murmur3_32Hash", "BoostHash"]))
def test_a_key_has_one_partition(key: str, partitions: int, hashing: Any) -> None:
    chosen = key_partition(key, partitions, hashing)
    assert 0 <= chosen < partitions
    for routing in ("RoundRobin", "SinglePartition"):
        router = make_router(ProducerConfig(routing=routing, hashing=hashing), random.Random(1))
        assert router.choose(OutgoingMessage(b"x", key), partitions, 0.0) == chosen
        assert router.choose_entry(encode_entry([b"x"], key=key), partitions) == chosen


@pytest.mark.parametrize(("key", "java", "murmur"), [("key1", 3288498, 462881061), ("k2", 3367, 1479966664)])
def test_keys_go_where_other_clients_send_them(key: str, java: int, murmur: int) -> None:
    assert key_partition(key, 7, "JavaStringHash") == java % 7
    assert key_partition(key, 7, "Murmur3_32Hash") == murmur % 7


@given(st.lists(st.integers(0, 30), min_size=1, max_size=100), st.integers(1, 5))
def test_round_robin_changes_when_a_batch_would_be_full(sizes: list[int], partitions: int) -> None:
    config = ProducerConfig(batch_max_messages=5, batch_max_bytes=50)
    router = make_router(config, random.Random(3))
    chosen = [router.choose(OutgoingMessage(b"x" * size), partitions, 0.0) for size in sizes]
    run_messages = run_bytes = 0
    for index, size in enumerate(sizes):
        if run_messages and (run_messages >= 5 or run_bytes + size > 50):
            assert chosen[index] == (chosen[index - 1] + 1) % partitions
            run_messages = run_bytes = 0
        elif index:
            assert chosen[index] == chosen[index - 1]
        run_messages += 1
        run_bytes += size
    before = router.choose(OutgoingMessage(b"", None), partitions, 100.0)
    assert router.choose(OutgoingMessage(b""), partitions, 100.02) == (before + 1) % partitions


# -- starting places ----------------------------------------------------------------------------------------------


@given(st.integers(1, 130), st.data())
def test_a_start_inside_a_batch_leaves_out_what_is_before_it(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    message_id = MessageId(5, 6, -1, index, size)
    for inclusive in (True, False):
        start = StartPosition(message_id, inclusive)
        new = start.new_messages((5, 6), size)
        assert new is not None
        wanted = [i for i in range(size) if new >> i & 1]
        assert wanted == list(range(index if inclusive else index + 1, size))
        assert start.new_messages((5, 7), size) is None
        # What the broker is asked for always contains what is wanted.
        asked = tuple(start.entry_data().ack_set)
        assert not asked or ack_set.wanted(asked) == list(range(index, size))
    assert StartPosition(MessageId(5, 6), inclusive=True).new_messages((5, 6), None) == 1
    assert StartPosition(MessageId(5, 6), inclusive=False).new_messages((5, 6), 3) == 0
    assert StartPosition(MessageId(5, 6), inclusive=True).new_messages((5, 6), 3) == 7


# -- settings -----------------------------------------------------------------------------------------------------


def test_service_urls_name_their_hosts() -> None:
    assert parse_service_url("pulsar://localhost") == ServiceUrl((HostPort("localhost", 6650),))
    several = ServiceUrl((HostPort("a", 1), HostPort("b", 6650), HostPort("::1", 2)))
    assert parse_service_url("pulsar://a:1,b,[::1]:2/") == several
    assert parse_service_url("pulsar+ssl://a,b:1") == ServiceUrl((HostPort("a", 6651), HostPort("b", 1)), is_tls=True)
    assert str(HostPort("::1", 2)) == "[::1]:2"
    for bad, why in (
        ("http://a:1", "scheme http"),
        ("pulsar+tls://a:1", r"scheme pulsar\+tls"),
        ("pulsar+ssl://a:70000", "port '70000'"),
        ("a:1", "scheme none"),
        ("pulsar://", "no host in"),
        ("pulsar://a:0", "port '0'"),
        ("pulsar://a:x", "port 'x'"),
        ("pulsar://a:1/x", "port '1/x'"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            parse_service_url(bad)


@pytest.mark.parametrize(
    ("make", "settings", "why"),
    [
        (ClientConfig, {"operation_timeout_s": 0}, "invalid operation_timeout_s 0: must be at least 0.001"),
        (ClientConfig, {"backoff_initial_ms": 200, "backoff_max_ms": 100}, "backoff_max_ms 100: must be at least 200"),
        (ProducerConfig, {"access_mode": "Sole"}, "invalid access_mode 'Sole': expected one of Shared, Exclusive"),
        (ProducerConfig, {"compression": "GZIP"}, "invalid compression 'GZIP': expected one of NONE, LZ4"),
        (ProducerConfig, {"batch_max_messages": 0}, "invalid batch_max_messages 0: must be at least 1"),
        (ProducerConfig, {"name": ""}, "name is empty"),
        (ProducerConfig, {"routing": "Random"}, "invalid routing 'Random': expected one of RoundRobin"),
        (ProducerConfig, {"initial_sequence_id": -1}, "invalid initial_sequence_id -1"),
        (ConsumerConfig, {"type": "Private"}, "invalid type 'Private': expected one of Exclusive"),
        (ConsumerConfig, {"receiver_queue_size": -1}, "invalid receiver_queue_size -1: must be at least 0"),
        (ConsumerConfig, {"name": ""}, "name is empty"),
        (ConsumerConfig, {"crypto_failure_action": "SEND"}, "action 'SEND': expected one of FAIL"),
        (ProducerConfig, {"crypto_failure_action": "DISCARD"}, "action 'DISCARD': expected one of FAIL"),
        (ProducerConfig, {"encryption_keys": ["k"]}, "crypto_key_reader must be set together"),
        (ProducerConfig, {"crypto_key_reader": FileKeyReader()}, "crypto_key_reader must be set together"),
        (
            ProducerConfig,
            {"encryption_keys": "k", "crypto_key_reader": FileKeyReader()},
            "invalid encryption_keys 'k': expected a list of names",
        ),
        (ConsumerConfig, {"read_compacted": True, "type": "Shared"}, "read_compacted requires type 'Exclusive'"),
    ],
)
def test_bad_settings_are_refused_by_name(make: Any, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        make(**settings)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_what_is_not_supported_does_not_exist(make: Any) -> None:
    for setting in ("tls_trust_certs_file_path", "tls_validate_hostname", "schema"):
        with pytest.raises(TypeError):
            make(**{setting: True})
