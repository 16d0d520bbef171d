"""The source ``file``: files that are finished, and one that grows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pulsar

from tests.connectors.cases.base import SourceCase


def line_of(record: tuple[int, str]) -> bytes:
    return json.dumps({"id": record[0], "text": record[1]}, ensure_ascii=False).encode() + b"\n"


class FileSourceCase(SourceCase):
    """A directory of files, each second one compressed."""

    connector = "file"
    bad_configs: ClassVar[Sequence[tuple[dict[str, Any], str]]] = (
        ({"inputDirectory": None}, "inputDirectory is missing"),
        ({"pollingInterval": "soon"}, "pollingInterval must be a whole number"),
        ({"fileFilter": "("}, "fileFilter"),
        ({"keepFile": True, "processedFileSuffix": ".done"}, "processedFileSuffix"),
        ({"inputDirectory": "/no/such/directory"}, "retrying"),
        ({"keepFiles": True}, "keepFiles"),
    )
    has_target = True
    fed = 0

    @property
    def files(self) -> Path:
        return self.directory / "in"

    def prepare(self) -> None:
        self.files.mkdir(exist_ok=True)

    def configs(self) -> dict[str, object]:
        return {"inputDirectory": str(self.files), "pollingInterval": 50}

    def take_away(self) -> None:
        """Rename the directory."""
        self.files.rename(self.directory / "elsewhere")

    def bring_back(self) -> None:
        (self.directory / "elsewhere").rename(self.files)

    def feed(self, records: list[tuple[int, str]]) -> None:
        self.put(b"".join(map(line_of, records)))

    def feed_bad(self) -> None:
        """What begins like gzip and is none."""
        self.put(b"\x1f\x8b not compressed at all")

    def put(self, data: bytes) -> None:
        """Make a file that is complete when it is seen."""
        self.fed += 1
        path = self.files / f".{self.fed:03}"
        path.write_bytes(data if self.fed % 2 else gzip.compress(data, 1))
        path.rename(path.with_name(path.name[1:]))

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        value = json.loads(message.data())
        assert message.properties()["file"].startswith("0")
        return value["id"], value["text"]


class TailFileSourceCase(FileSourceCase):
    """A file that grows and is rotated in between."""

    bad_configs = (({"processedFileSuffix": ".done"}, "tail and processedFileSuffix"),)

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "tail": True}

    def feed(self, records: list[tuple[int, str]]) -> None:
        """Half of it into the file that is there, half into the one that takes its place."""
        half = len(records) // 2
        self.append(records[:half])
        log = self.files / "01.log"
        self.fed += 1
        log.rename(self.files / f"00-{self.fed}.log")
        self.append(records[half:])

    def append(self, records: list[tuple[int, str]]) -> None:
        with open(self.files / "01.log", "ab") as file:
            for record in records:
                file.write(line_of(record))

    def feed_bad(self) -> None:
        """A file that cannot be followed is none of these: bytes that are no text are sent as they are."""
