"""Schemas of single values: what Java and the official Python client write, and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pulsar.schema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client import (
    BooleanSchema,
    BytesSchema,
    DateSchema,
    DoubleSchema,
    FloatSchema,
    InstantSchema,
    Int8Schema,
    Int16Schema,
    Int32Schema,
    Int64Schema,
    LocalDateSchema,
    LocalDateTimeSchema,
    LocalTimeSchema,
    Schema,
    SchemaSerializationError,
    StringSchema,
    TimeSchema,
    TimestampSchema,
)

LOCAL = datetime.fromisoformat("2020-01-01T00:00:00")
SUMMER = timezone(timedelta(hours=2))

# By Java's client 4.0.7, in a process whose time zone is UTC.
WRITTEN_BY_JAVA: list[tuple[Schema[Any], Any, str]] = [
    (BooleanSchema(), True, "01"),
    (BooleanSchema(), False, "00"),
    (Int8Schema(), -2, "fe"),
    (Int16Schema(), 258, "0102"),
    (Int32Schema(), -2, "fffffffe"),
    (Int64Schema(), 1 << 40, "0000010000000000"),
    (FloatSchema(), 1.5, "3fc00000"),
    (DoubleSchema(), -2.0, "c000000000000000"),
    (DateSchema(), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "00000000000003e8"),
    (TimeSchema(), time(0, 0, 1, 5000), "00000000000003ed"),
    (TimestampSchema(), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "fffffffffffffc18"),
    (InstantSchema(), datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), "000000000000000100001388"),
    (LocalDateSchema(), date(1970, 1, 3), "0000000000000002"),
    (LocalTimeSchema(), time(0, 0, 0, 1), "00000000000003e8"),
    (LocalDateTimeSchema(), datetime.fromisoformat("1970-01-03T00:00:00.000001"), "000000000000000200000000000003e8"),
    (StringSchema(), "é", "c3a9"),
    (BytesSchema(), b"\x00\xff", "00ff"),
]


@pytest.mark.parametrize(("schema", "value", "written"), WRITTEN_BY_JAVA)
def test_values_are_encoded_as_java_does(schema: Schema[Any], value: Any, written: str) -> None:
    assert schema.encode(value).hex() == written
    assert schema.decode(bytes.fromhex(written)) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_that_of_the_official_client(text: str) -> None:
    ours, theirs = StringSchema(), pulsar.schema.StringSchema()
    assert ours.encode(text) == theirs.encode(text)
    assert ours.decode(theirs.encode(text)) == text


MOMENTS = st.datetimes(LOCAL.replace(year=2), LOCAL.replace(year=9998), timezones=st.sampled_from([UTC, SUMMER]))


@given(MOMENTS, st.sampled_from([DateSchema(), TimestampSchema()]))
def test_moments_keep_their_milliseconds(moment: datetime, schema: Schema[datetime]) -> None:
    read = schema.decode(schema.encode(moment))
    assert timedelta(0) <= moment - read < timedelta(milliseconds=1)


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_keep_their_microseconds(moment: datetime) -> None:
    assert InstantSchema().decode(InstantSchema().encode(moment)) == moment


@given(st.datetimes())
def test_local_times_keep_their_microseconds(moment: datetime) -> None:
    assert LocalDateTimeSchema().decode(LocalDateTimeSchema().encode(moment)) == moment
    assert LocalDateSchema().decode(LocalDateSchema().encode(moment.date())) == moment.date()
    assert LocalTimeSchema().decode(LocalTimeSchema().encode(moment.time())) == moment.time()


@given(st.floats(width=32))
def test_floats_of_32_bits_stay_as_they_are(number: float) -> None:
    read = FloatSchema().decode(FloatSchema().encode(number))
    assert read == number or (math.isnan(read) and math.isnan(number))


def test_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(SchemaSerializationError, match=r"got an object \(int\)"):
        Int32Schema().encode(10**5000)


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        (StringSchema(), b"x", "schema STRING: expected a str, got b'x' (bytes)"),
        (StringSchema(), "a\ud800", "schema STRING: cannot encode the lone surrogate at index 1 as UTF-8"),
        (BytesSchema(), "x", "schema BYTES: expected bytes, got 'x' (str)"),
        (BooleanSchema(), 1, "schema BOOLEAN: expected a bool, got 1 (int)"),
        (Int8Schema(), 128, "schema INT8: expected an 8-bit int, got 128 (int)"),
        (Int64Schema(), 1 << 63, "schema INT64: expected a 64-bit int, got 9223372036854775808 (int)"),
        (Int32Schema(), True, "schema INT32: expected a 32-bit int, got True (bool)"),
        (FloatSchema(), 1e39, "schema FLOAT: expected a 32-bit float, got 1e+39 (float)"),
        (DoubleSchema(), 10**400, f"schema DOUBLE: expected a float, got 1{'0' * 35} ... (int)"),
        (DoubleSchema(), "1", "schema DOUBLE: expected a float, got '1' (str)"),
        (DateSchema(), LOCAL, "schema DATE: expected a timezone-aware datetime, got"),
        (LocalDateSchema(), LOCAL, "schema LOCAL_DATE: expected a date, got"),
        (LocalTimeSchema(), time(1, tzinfo=UTC), "schema LOCAL_TIME: expected a naive time, got"),
        (LocalDateTimeSchema(), datetime(2020, 1, 1, tzinfo=UTC), "schema LOCAL_DATE_TIME: expected a naive"),
    ],
)
def test_another_value_is_refused_on_one_line(schema: Schema[Any], value: object, why: str) -> None:
    with pytest.raises(SchemaSerializationError) as caught:
        schema.encode(value)
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isascii()


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        (StringSchema(), b"a\xff", "schema STRING: invalid UTF-8 at byte 1 of 2"),
        (Int32Schema(), b"\x00", "schema INT32: expected 4 bytes, got 1"),
        (BooleanSchema(), b"", "schema BOOLEAN: expected 1 bytes, got 0"),
        (DateSchema(), b"\x7f" + b"\xff" * 7, "schema DATE: 0x7fffffffffffffff cannot be represented in Python"),
        (
            LocalDateSchema(),
            b"\x80" + b"\x00" * 7,
            "schema LOCAL_DATE: 0x8000000000000000 cannot be represented in Python",
        ),
        (LocalTimeSchema(), b"\xff" * 8, "schema LOCAL_TIME: 0xffffffffffffffff cannot be represented in Python"),
        (
            InstantSchema(),
            b"\x7f" + b"\xff" * 11,
            "schema INSTANT: 0x7fffffffffffffffffffffff cannot be represented in Python",
        ),
    ],
)
def test_bytes_that_are_no_value_are_refused(schema: Schema[Any], data: bytes, why: str) -> None:
    with pytest.raises(SchemaSerializationError) as caught:
        schema.decode(data)
    assert str(caught.value).startswith(why)
