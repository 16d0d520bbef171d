"""The source and the sink of ``examples/connectors``, uploaded as a user's connectors, on an SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pulsar

from tests.connectors.cases.base import Case, SinkCase, SourceCase

EXAMPLES = Path(__file__).parents[3] / "examples" / "connectors"


class Notes(Case):
    """A table that another connection locks to make it unavailable."""

    has_target = True

    def prepare(self) -> None:
        self.database = sqlite3.connect(self.file, isolation_level=None, check_same_thread=False)
        self.database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT)")

    @property
    def file(self) -> Path:
        return self.directory / "notes.db"

    def configs(self) -> dict[str, object]:
        return {"database": str(self.file)}

    def take_away(self) -> None:
        self.database.execute("PRAGMA busy_timeout=10000")
        self.database.execute("BEGIN EXCLUSIVE")

    def bring_back(self) -> None:
        self.database.execute("ROLLBACK")

    def close(self) -> None:
        if hasattr(self, "database"):
            self.database.close()


class NotesSinkCase(Notes, SinkCase):
    """Rows by ID, so that a rewritten row exists only once."""

    connector = "notes-sink"
    class_name = "notes_sink.NotesSink"
    package: ClassVar[Mapping[str, str]] = {"notes_sink.py": (EXAMPLES / "notes_sink.py").read_text()}
    is_exact = True
    bad_configs = (
        ({"database": None}, "database is missing"),
        ({"databse": "x"}, "databse"),
        ({"database": "/no/such/directory/notes.db"}, "unable to open database file"),
    )

    def bad_record(self) -> bytes | None:
        return json.dumps({"id": 5}).encode()

    def read_back(self) -> list[tuple[int, str]]:
        return self.database.execute("SELECT id, text FROM notes").fetchall()


class NotesSourceCase(Notes, SourceCase):
    """Rows in the order of their IDs."""

    connector = "notes-source"
    class_name = "notes_source.NotesSource"
    package: ClassVar[Mapping[str, str]] = {"notes_source.py": (EXAMPLES / "notes_source.py").read_text()}
    bad_configs = (({"database": 7}, "database must be a string"), ({"database": ":memory:"}, "no such table: notes"))

    def feed(self, records: list[tuple[int, str]]) -> None:
        self.database.execute("PRAGMA busy_timeout=10000")
        self.database.execute("BEGIN")
        self.database.executemany("INSERT INTO notes VALUES (?, ?)", records)
        self.database.execute("COMMIT")

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        return int(message.partition_key()), message.data().decode()
