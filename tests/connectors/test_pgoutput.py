"""Messages of pgoutput: what was made of parts is read as these parts, and what is none is refused."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.api.connector import DeadLetter
from magnetar.connectors.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    MalformedMessage,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    Type,
    Update,
    decode,
    lsn_of,
    lsn_text,
)
from magnetar.connectors.postgres_changes import ChangeMaker, Envelope
from magnetar.connectors.postgres_values import encoder_of

OID = st.integers(0, 2**32 - 1)
LSN = st.integers(0, 2**64 - 1)
TIME = st.integers(-(2**63), 2**63 - 1)
NAME = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
SCHEMA = NAME.filter(bool)
TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=300)
VALUES = st.lists(st.one_of(st.none(), st.just(UNCHANGED), TEXT, st.binary(max_size=20)), max_size=8).map(tuple)
COLUMN = st.builds(RelationColumn, NAME, OID, st.integers(-(2**31), 2**31 - 1), st.booleans())
MESSAGES = st.one_of(
    st.builds(Begin, LSN, TIME, OID),
    st.builds(Commit, LSN, LSN, TIME),
    st.builds(Origin, LSN, NAME),
    st.builds(Relation, OID, SCHEMA, NAME, st.sampled_from("dnfi"), st.lists(COLUMN, max_size=5).map(tuple)),
    st.builds(Type, OID, SCHEMA, NAME),
    st.builds(Insert, OID, VALUES),
    st.builds(Update, OID, VALUES, st.booleans(), VALUES),
    st.builds(Update, OID, st.none(), st.just(False), VALUES),
    st.builds(Delete, OID, VALUES, st.booleans()),
    st.builds(Truncate, st.lists(OID, max_size=4).map(tuple), st.integers(0, 3)),
    st.builds(LogicalMessage, st.booleans(), LSN, NAME, st.binary(max_size=50)),
)


def encode(message: Any) -> bytes:
    """The bytes that the server sends, after the documentation."""
    match message:
        case Begin(lsn, time, xid):
            return b"B" + struct.pack(">QqI", lsn, time, xid)
        case Commit(lsn, end, time):
            return b"C\0" + struct.pack(">QQq", lsn, end, time)
        case Origin(lsn, name):
            return b"O" + struct.pack(">Q", lsn) + text(name)
        case Relation(number, schema, name, identity, columns):
            parts = [struct.pack(">I", number), text(schema), text(name), identity.encode()]
            parts.append(struct.pack(">h", len(columns)))
            for column in columns:
                head = bytes([column.is_key]) + text(column.name)
                parts.append(head + struct.pack(">Ii", column.type_oid, column.modifier))
            return b"R" + b"".join(parts)
        case Type(number, schema, name):
            return b"Y" + struct.pack(">I", number) + text(schema) + text(name)
        case Insert(relation, new):
            return b"I" + struct.pack(">I", relation) + b"N" + row(new)
        case Update(relation, old, is_key, new):
            before = b"" if old is None else (b"K" if is_key else b"O") + row(old)
            return b"U" + struct.pack(">I", relation) + before + b"N" + row(new)
        case Delete(relation, old, is_key):
            return b"D" + struct.pack(">I", relation) + (b"K" if is_key else b"O") + row(old)
        case Truncate(relations, options):
            return b"T" + struct.pack(f">iB{len(relations)}I", len(relations), options, *relations)
        case LogicalMessage(is_transactional, lsn, prefix, content):
            head = struct.pack(">BQ", is_transactional, lsn) + text(prefix)
            return b"M" + head + struct.pack(">i", len(content)) + content
    raise AssertionError(message)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def row(values: Any) -> bytes:
    made = [struct.pack(">h", len(values))]
    for value in values:
        if value is None:
            made.append(b"n")
        elif value is UNCHANGED:
            made.append(b"u")
        else:
            kind, data = (b"b", value) if isinstance(value, bytes) else (b"t", value.encode())
            made.append(kind + struct.pack(">i", len(data)) + data)
    return b"".join(made)


@given(MESSAGES)
def test_message_is_read_as_it_was_made(message: Any) -> None:
    assert decode(encode(message)) == message


@given(MESSAGES, st.data())
def test_message_that_is_cut_or_too_long_is_refused(message: Any, data: st.DataObject) -> None:
    made = encode(message)
    with pytest.raises(MalformedMessage):
        decode(made[: data.draw(st.integers(0, len(made) - 1))])
    with pytest.raises(MalformedMessage):
        decode(made + b"x")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_message_or_refused(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        decode(data)


@given(LSN)
def test_place_in_the_log_as_text(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn


@pytest.mark.parametrize(
    ("oid", "value", "made"),
    [
        (16, "t", True),
        (16, "false", False),
        (20, "-9223372036854775808", -(2**63)),
        (701, "1e+20", 1e20),
        (701, "NaN", "NaN"),
        (700, "-Infinity", "-Infinity"),
        (1700, "123456789012345678901234567890.10", "123456789012345678901234567890.10"),
        (17, "\\x0001ff", "AAH/"),
        (17, "\\x", ""),
        (3802, '{"a": [1, 2.50]}', {"a": [1, 2.5]}),
        (1114, "2024-02-29 01:02:03.5", "2024-02-29T01:02:03.5"),
        (1184, "2024-02-29 01:02:03.5+00", "2024-02-29T01:02:03.5Z"),
        (1184, "infinity", "infinity"),
        (25, 'ä"\\\n\x01', 'ä"\\\n\x01'),
        (1007, "{1,2}", "{1,2}"),
    ],
)
def test_text_of_a_type_is_json(oid: int, value: str, made: Any) -> None:
    assert json.loads(encoder_of(oid)(value)) == made


PEOPLE = Relation(7, "public", "people", "d", (RelationColumn("id", 23, -1, True), RelationColumn("t", 25, -1, False)))


def changes_of(*messages: Any, relation: Relation = PEOPLE, **envelope: Any) -> list[tuple[str | None, Any]]:
    maker = ChangeMaker(Envelope(**envelope), lambda name: name != "public.hidden", lambda _: ["id"])
    made = []
    for message in (Begin(0x100000002, 0, 9), relation, *messages):
        made += [(one.key, json.loads(one.value) if one.value else None) for one in maker.records(message)]
    return made


def test_insert_is_a_record() -> None:
    ((key, value),) = changes_of(Insert(7, ("1", None)))
    assert key == "1"
    assert value == {
        "op": "c", "before": None, "after": {"id": 1, "t": None}, "table": "public.people", "lsn": "1/2",
        "ts": 946_684_800_000,
    }  # fmt: skip


def test_value_that_was_not_sent_is_left_out_and_named() -> None:
    ((_, value),) = changes_of(Update(7, None, False, ("1", UNCHANGED)))
    assert value["op"] == "u"
    assert (value["after"], value["unchanged"]) == ({"id": 1}, ["t"])


def test_value_that_was_not_sent_is_that_of_the_whole_old_row() -> None:
    full = PEOPLE._replace(identity="f")
    ((key, value),) = changes_of(Update(7, ("1", "x"), False, ("1", UNCHANGED)), relation=full)
    assert key == "1"
    assert (value["before"], value["after"]) == ({"id": 1, "t": "x"}, {"id": 1, "t": "x"})
    assert "unchanged" not in value


def test_update_of_the_key_deletes_the_old_one() -> None:
    made = changes_of(Update(7, ("1", None), True, ("2", "x")))
    assert [(key, value["op"], value["before"], value["after"]) for key, value in made] == [
        ("1", "d", {"id": 1}, None), ("2", "c", None, {"id": 2, "t": "x"})
    ]  # fmt: skip


def test_delete_has_the_key_and_a_tombstone_if_wanted() -> None:
    made = changes_of(Delete(7, ("1", None), True), has_tombstones=True)
    assert [(key, value and value["before"]) for key, value in made] == [("1", {"id": 1}), ("1", None)]


def test_key_of_several_columns_is_an_object() -> None:
    pair = PEOPLE._replace(columns=tuple(column._replace(is_key=True) for column in PEOPLE.columns))
    ((key, _),) = changes_of(Insert(7, ("1", "x")), relation=pair)
    assert key is not None
    assert json.loads(key) == {"id": 1, "t": "x"}


def test_truncate_and_message_are_records() -> None:
    (truncated, (key, message)) = changes_of(Truncate((7,), 0), LogicalMessage(True, 5, "p", b"\0"))
    assert (truncated[1]["op"], truncated[1]["table"]) == ("t", "public.people")
    assert (key, message["op"], message["message"]) == (None, "m", {"prefix": "p", "content": "AA=="})


def test_changes_of_other_tables_are_left_out() -> None:
    assert changes_of(Insert(7, ("1", None)), Truncate((7,), 0), relation=PEOPLE._replace(name="hidden")) == []


def test_debezium_has_the_place_in_source() -> None:
    ((_, value),) = changes_of(Insert(7, ("1", None)), is_debezium=True, server="s", database="d")
    assert value == {
        "before": None, "after": {"id": 1, "t": None}, "op": "c", "ts_ms": 946_684_800_000,
        "source": {
            "connector": "postgresql", "name": "s", "ts_ms": 946_684_800_000, "snapshot": "false", "db": "d",
            "schema": "public", "table": "people", "txId": 9, "lsn": 0x100000002,
        },
    }  # fmt: skip


def test_text_that_is_not_utf8_costs_one_change() -> None:
    """As a database with the encoding SQL_ASCII may hold."""
    relation = Relation(1, "public", "t", "d", (RelationColumn("id", 23, -1, True), RelationColumn("v", 25, -1, False)))
    changes = ChangeMaker(Envelope(), lambda table: True, lambda relation: ())
    changes.records(relation)
    data = encode(Insert(1, ("1", "cafe"))).replace(b"cafe", b"caf\xe9")
    (letter,) = changes.records(decode(data))
    assert isinstance(letter, DeadLetter)
    assert letter.reason == "a change of public.t contains invalid UTF-8"
    assert b"caf\xe9" in letter.value
    (following,) = changes.records(decode(encode(Insert(1, ("2", "good")))))
    assert json.loads(following.value)["after"] == {"id": 2, "v": "good"}
