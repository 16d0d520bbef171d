"""Values of boolean settings."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.client import ConsumerConfig, ConsumerKeySharedPolicy, ProducerConfig
from magnetar.client.config import ReaderConfig
from magnetar.errors import InvalidConfig


@pytest.mark.parametrize("value", ["no", "false", None, 2], ids=repr)
@pytest.mark.parametrize(
    ("config", "name"),
    [
        (ProducerConfig, "batching"),
        (ProducerConfig, "chunking_enabled"),
        (ConsumerConfig, "ack_receipts"),
        (ConsumerKeySharedPolicy, "allow_out_of_order_delivery"),
        (ReaderConfig, "start_inclusive"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_a_boolean_setting_of_another_type_is_refused(config: type[Any], name: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=f"invalid {name} .*: expected True or False, got "):
        config(**{name: value})


@pytest.mark.parametrize("value", [True, False, 0, 1])
def test_booleans_and_the_numbers_that_equal_them_are_taken(value: bool) -> None:
    assert ProducerConfig(block_if_queue_full=value).block_if_queue_full == value
