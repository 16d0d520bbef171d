"""Sizes as flags take them."""

from __future__ import annotations

import click
import pytest
from magnetar.cli.cluster.namespaces import parse_megabytes
from magnetar.cli.topics.policies import bytes_or_no_limit
from magnetar.config.connector_config import SINK_FLAGS, SOURCE_FLAGS
from magnetar.config.function_config import FUNCTION_FLAGS
from magnetar.config.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("100000", 100000), ("7b", 7), ("7 B", 7), ("2k", 2048), ("2KB", 2048), ("2 kib", 2048),
        ("64M", 67108864), ("64MB", 67108864), ("64mb", 67108864), ("64MiB", 67108864), ("1G", 2**30), ("1Gb", 2**30),
        ("3TiB", 3 * 2**40), ("-1", -1),
    ],
)  # fmt: skip
def test_units_are_powers_of_1024_in_any_case(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "M", "1.5M", "10X", "iB", "1iB", "-2", "-1M", "1 0", "1  M", " 1", "1M ", "1MBB", "٣M"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a whole number of bytes, or one with K, M, G or T"):
        parse_size(text)


@pytest.mark.parametrize("flags", [FUNCTION_FLAGS, SOURCE_FLAGS, SINK_FLAGS], ids=["function", "source", "sink"])
@pytest.mark.parametrize("name", ["--ram", "--disk"])
def test_resources_take_units(flags: list[tuple[str, object]], name: str) -> None:
    field = next(field for _, field in flags if name in field.flags.split())  # type: ignore[attr-defined]
    assert field.kind.parse("64MB") == 64 * 2**20  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="expected a whole number of bytes"):
        field.kind.parse("-1")  # type: ignore[attr-defined]


def test_rates_take_units_and_no_limit() -> None:
    assert [bytes_or_no_limit(text) for text in ("1MB", "-1", "5")] == [2**20, -1, 5]
    with pytest.raises(click.BadParameter, match="invalid size '-5': expected a whole number of bytes"):
        bytes_or_no_limit("-5")


def test_a_retention_without_a_unit_counts_megabytes() -> None:
    assert [parse_megabytes(text) for text in ("500", "500MB", "10g", "1 TiB", "0", "-1", "1048576B")] == [
        500, 500, 10240, 2**20, 0, -1, 1,
    ]  # fmt: skip
    for text in ("1K", "M", "-2"):
        with pytest.raises(click.BadParameter, match=f"invalid size '{text}': expected"):
            parse_megabytes(text)
