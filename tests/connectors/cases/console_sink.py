"""The sink ``console``, whose output is read from the instance log; it has no other system to lose."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from magnetar.instance.logs.file import rotated

from tests.connectors.cases.base import SinkCase

_LINE = re.compile(r"\S+Z INFO \[[^\]]+\] (?P<text>.*)")
_METADATA = re.compile(r"\d+:\d+\S* key=(?P<key>None|'.*?') properties=(?P<properties>\{.*?\}) (?P<value>\{.*)")


class ConsoleSinkCase(SinkCase):
    """Values only."""

    connector = "console"
    is_ordered = True
    largest = 60_000  # characters that a line of a log has at most, less those before the value
    bad_configs: ClassVar[Sequence[tuple[dict[str, Any], str]]] = (
        ({"mostChars": 0}, "mostChars must be at least 1"),
        ({"showMetadata": "yes"}, "showMetadata must be true or false"),
        ({"mostChar": 9}, "did you mean mostChars?"),
    )
    shows_metadata: ClassVar[bool] = False

    def configs(self) -> dict[str, object]:
        return {"mostChars": self.largest, "showMetadata": self.shows_metadata}

    def read_back(self) -> list[tuple[int, str]]:
        return [(value["id"], value["text"]) for value in map(self.value_of, self.shown())]

    def value_of(self, text: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(text)
        return value

    def shown(self) -> Iterator[str]:
        """Yield the record part of each complete line, without the time and the logger name."""
        files = [file for file in (rotated(self.log_file), self.log_file) if file.exists()]
        data = b"".join(file.read_bytes() for file in files)
        for line in data[: data.rfind(b"\n") + 1].decode().split("\n")[:-1]:
            found = _LINE.fullmatch(line)
            if found is not None and '{"id": ' in found["text"]:
                yield found["text"]


class ConsoleMetadataCase(ConsoleSinkCase):
    """Values with message ID, key and properties."""

    shows_metadata = True
    bad_configs = ()

    def value_of(self, text: str) -> dict[str, Any]:
        found = _METADATA.fullmatch(text)
        assert found is not None, text
        value = super().value_of(found["value"])
        number = value["id"]
        assert ast.literal_eval(found["key"]) == self.key(number)
        size = len(self.value(number, value["text"]))
        given = {"number": str(number), "länge": str(size)} if number % 3 else {}
        assert ast.literal_eval(found["properties"]) == given
        return value
