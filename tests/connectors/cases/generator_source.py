"""The source ``generator``, which has no other system and needs no feeding."""

from __future__ import annotations

import json

import pulsar

from tests.connectors.cases.base import SourceCase


class GeneratorSourceCase(SourceCase):
    """Numbers in order, mapped to the texts that the suite would feed."""

    connector = "generator"
    bad_configs = (
        ({"rate": -1}, "rate must be at least 0"),
        ({"fields": {"id": "serial"}}, "field 'id': unknown type 'serial'"),
        ({"key": "name"}, "invalid key 'name': expected a field name"),
        ({"cuont": 1}, "cuont"),
    )

    def __init__(self, server: object, directory: object) -> None:
        super().__init__(server, directory)  # type: ignore[arg-type]
        self.texts: dict[int, str] = {}

    def configs(self) -> dict[str, object]:
        return {"fields": {"id": "sequence"}, "rate": 4000, "count": self.count}

    def feed(self, records: list[tuple[int, str]]) -> None:
        self.texts |= dict(records)

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        number = json.loads(message.data())["id"]
        return number, self.texts[number]
