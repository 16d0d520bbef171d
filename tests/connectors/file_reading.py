"""Call the source ``file`` directly, to test which files it reads and removes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from magnetar.api.connector import DeadLetter
from magnetar.api.connector_config import read_config
from magnetar.connectors import file_source
from magnetar.connectors.file_source import FileSource, FileSourceConfig


@pytest.fixture(autouse=True)
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable pauses of sources, and close each source."""
    monkeypatch.setattr(file_source, "_IDLE_S", 0.0)
    monkeypatch.setattr(file_source, "_SHORT_S", 0.0)
    yield
    while Reading.opened:
        Reading.opened.pop().close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    directory.mkdir()
    return directory


class Reading:
    """A running source whose records are acknowledged immediately."""

    opened: ClassVar[list[FileSource]] = []

    def __init__(self, path: Path, position: Any = None, share: tuple[int, int] = (0, 1), **configs: Any) -> None:
        self.source = FileSource()
        config = read_config(FileSourceConfig, {"path": str(path), "pollingInterval": 10} | configs)
        self.source.check(config)
        number, count = share
        context: Any = SimpleNamespace(
            position=position, instance_id=number, parallelism=count, logger=logging.getLogger("files")
        )
        self.source.open(config, context)
        self.opened.append(self.source)
        self.letters: list[DeadLetter] = []  # of what was read by `lines`

    @staticmethod
    def created(path: Path, **configs: Any) -> dict[str, Any]:
        """Return the stored settings of a new source."""
        return (
            dict(FileSource().stored_defaults(read_config(FileSourceConfig, {"path": str(path)} | configs))) | configs
        )

    def lines(self, *, acknowledges: bool = True) -> list[Any]:
        """Return all records that are available now."""
        found: list[bytes] = []
        idle = 0
        while idle < 2:
            records = self.source.read()
            idle = 0 if records else idle + 1
            if not records:
                self.source._looked_s = -1e9
                continue
            self.letters += [record for record in records if isinstance(record, DeadLetter)]
            found += [record.value for record in records if not isinstance(record, DeadLetter)]
            for record in records:
                if acknowledges and record.acknowledge is not None:
                    record.acknowledge()
        return found

    @property
    def reasons(self) -> list[str]:
        """Return the reasons of the dead letters."""
        return [letter.reason for letter in self.letters]

    def position(self) -> Any:
        return json.loads(json.dumps(self.source.snapshot()))

    def close(self) -> Any:
        self.source.close()
        return self.position()


def put(path: Path, count: int, *, text: str = "") -> list[bytes]:
    lines = [f"{text or path.name} {number}".encode() for number in range(count)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return lines


def add(path: Path, first: int, last: int) -> list[bytes]:
    lines = [b"line %d of a log, and more of it" % number for number in range(first, last)]
    with open(path, "ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    return lines
