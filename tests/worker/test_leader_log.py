"""A leader writes alone, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from magnetar.client.config import ProducerConfig
from magnetar.errors import NotAllowed
from magnetar.worker.cluster.internal_topic import TopicLog


class Client:
    """A broker that gives a topic to no producer alone."""

    def __init__(self) -> None:
        self.modes: list[str] = []

    async def create_producer(self, topic: str, config: ProducerConfig) -> Any:
        self.modes.append(config.access_mode)
        raise NotAllowed(f"{topic}: not offered here")


async def test_a_log_that_cannot_be_taken_exclusively_is_not_taken() -> None:
    client = Client()
    with pytest.raises(NotAllowed, match="two leaders could write"):
        await TopicLog(client, "persistent://public/functions/metadata", "w").open_writer("w-leader")  # type: ignore[arg-type]
    assert client.modes == ["Exclusive"]
