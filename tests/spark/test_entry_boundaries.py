"""Entries end where the rows say, never where Spark's record batches do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.spark.source.entry_boundaries import MAX_BYTES, MAX_ROWS, EntryBuilder, RowEntry, partition_of
from magnetar.wire.pulsar_api_pb2 import SingleMessageMetadata

SIZES = st.lists(
    st.tuples(st.integers(1, 1500), st.sampled_from([0, 10, 100, 1_000, 50_000, MAX_BYTES, MAX_BYTES + 7])),
    min_size=1,
    max_size=6,
)
BOUNDS = st.lists(st.integers(1, 900), max_size=8)


def rows_of(sizes: list[tuple[int, int]]) -> list[bytes]:
    # Large rows in small numbers: what matters is where they lie between the small ones.
    return [bytes(size) for count, size in sizes for _ in range(count if size <= 1_000 else count % 5)]


def all_entries(builder: EntryBuilder, entries: list[RowEntry]) -> list[RowEntry]:
    rest = builder.rest()
    assert builder.rest() is None
    return [*entries, rest] if rest is not None else entries


def plain(rows: list[bytes], bounds: list[int]) -> list[RowEntry]:
    builder, entries, start = EntryBuilder(), [], 0
    for size in [*bounds, len(rows)]:
        entries += list(builder.add_plain(start, rows[start : start + size]))
        start = min(start + size, len(rows))
    return all_entries(builder, entries)


@given(SIZES, BOUNDS)
def test_boundaries_do_not_depend_on_how_rows_are_grouped(sizes: list[tuple[int, int]], bounds: list[int]) -> None:
    rows = rows_of(sizes)
    entries = plain(rows, bounds)
    builder = EntryBuilder()
    one_by_one = [entry for row, payload in enumerate(rows) if (entry := builder.add(row, payload, None)) is not None]
    assert entries == all_entries(builder, one_by_one)
    assert [payload for entry in entries for payload in entry.payloads] == rows
    assert [entry.first_row for entry in entries] == [
        sum(len(c.payloads) for c in entries[:n]) for n in range(len(entries))
    ]
    for entry in entries:
        assert len(entry.payloads) <= MAX_ROWS
        assert sum(map(len, entry.payloads)) <= MAX_BYTES or len(entry.payloads) == 1
        assert entry.headers is None


def test_rows_with_and_without_metadata_share_entries() -> None:
    builder = EntryBuilder()
    header = SingleMessageMetadata(payload_size=0, partition_key="k")
    assert builder.add(4, b"a", header) is None
    assert list(builder.add_plain(7, [b"b"])) == []
    assert builder.rest() == RowEntry(4, [b"a", b"b"], [header, None])


def test_rows_are_spread_by_key_or_in_blocks() -> None:
    assert partition_of(12345, "k", 1) == 0
    assert [partition_of(row, None, 3) for row in (0, 999, 1000, 2999, 3000)] == [0, 0, 1, 2, 0]
    assert {partition_of(row, "k", 5) for row in range(0, 9000, 500)} == {partition_of(0, "k", 5)}


def test_entries_are_as_small_as_options_say() -> None:
    builder = EntryBuilder(3, 100)
    entries = [entry for row in range(8) if (entry := builder.add(row, b"x", None))]
    assert [len(entry.payloads) for entry in entries] == [3, 3]
    plain = EntryBuilder(3, 100)
    assert [len(entry.payloads) for entry in plain.add_plain(0, [b"x"] * 8)] == [3, 3]
    large = EntryBuilder(3, 100)
    assert [len(entry.payloads) for entry in large.add_plain(0, [b"x" * 60] * 4)] == [1, 1, 1]
